-- tasks/waiting_ids: the ids of the jobs that wait for others, some at a time.
--
-- KEYS[1]  pending  hash    id -> ids of the parents that it still waits for
-- ARGV[1]  cursor   string, '0' to begin
-- ARGV[2]  count    integer from 1 to 250, about how many
-- RETURNS  {cursor, id, ...}; '0' when these were the last. Jobs that wait throughout are returned, some perhaps twice.
-- TWICE    the same, if they are the same; nothing is changed
-- COST     O(count)
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
local answer = {found[1]}
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
end
return answer
