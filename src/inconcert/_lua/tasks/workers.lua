-- tasks/workers: who claims jobs, some at a time.
--
-- KEYS[1]  workers  zset    worker -> when it is taken for dead, ms by the lease clock
-- ARGV[1]  cursor   string, '0' to begin
-- RETURNS  {cursor, worker, ...}, also those that are dead and not yet recovered; '0' when these were the last. Those
--          that are there all the while are answered, some perhaps twice.
-- TWICE    the same, if none has come or gone; nothing is changed
-- COST     O(N), N workers answered, about 100
local found = redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', 100)
local answer = {found[1]}
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
end
return answer
