-- claims/workers: list the workers that hold jobs, or items, some at a time.
--
-- KEYS  workers
-- ARGV  cursor  string, '0' to begin
-- RETURNS  {cursor, worker, ...}, also those that are dead and not yet recovered; '0' when these were the last. Workers
--          present throughout are returned, some perhaps twice.
-- TWICE    the same, if the workers are the same; nothing is changed
-- COST     O(N), N workers returned, about 100
local found = redis.call('ZSCAN', workers, cursor, 'COUNT', 100)
local answer = {found[1]}
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
end
return answer
