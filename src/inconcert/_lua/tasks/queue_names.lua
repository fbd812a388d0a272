-- tasks/queue_names: the names of the queues in which there ever was a job, some at a time.
--
-- KEYS  finished
-- ARGV  cursor  string, '0' to begin
-- RETURNS  {cursor, name, ...}; '0' when these were the last. All are returned, some perhaps twice.
-- TWICE    the same, if they are the same; nothing is changed
-- COST     O(N), N names returned, about 500
local found = redis.call('HSCAN', finished, cursor, 'COUNT', 500)
local answer = {found[1]}
for i = 1, #found[2], 2 do
  answer[#answer + 1] = found[2][i]
end
return answer
