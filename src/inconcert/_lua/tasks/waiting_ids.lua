-- tasks/waiting_ids: the ids of the jobs that wait for others, some at a time.
--
-- KEYS  pending
-- ARGV  cursor  string, '0' to begin
-- ARGV  count   integer from 1 to 250, about how many
-- RETURNS  {cursor, id, ...}; '0' when these were the last. Jobs that wait throughout are returned, some perhaps twice.
-- TWICE    the same, if they are the same; nothing is changed
-- COST     O(count)
local found = redis.call('HSCAN', pending, cursor, 'COUNT', count)
local answer = {found[1]}
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
end
return answer
