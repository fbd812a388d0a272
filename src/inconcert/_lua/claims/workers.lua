-- claims/workers: list the workers that hold jobs, or items, some at a time.
--
-- KEYS[1]  workers  zset    worker -> when it is presumed dead, ms by the lease clock
-- ARGV[1]  cursor   string, '0' to begin
-- RETURNS  {cursor, worker, ...}, also those that are dead and not yet recovered; '0' when these were the last. Workers
--          present throughout are returned, some perhaps twice.
-- TWICE    the same, if the workers are the same; nothing is changed
-- COST     O(N), N workers returned, about 100
local found = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', 100)
local answer = {found[1]}
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
end
return answer
