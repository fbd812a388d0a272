-- tasks/states: where jobs are.
--
-- KEYS[1]    states  hash  id -> where it is, unless in its queue
-- ARGV[1..]  ids     of the jobs, 1 to 250
-- RETURNS    {state, ...}, in their order: '' if a job is in its queue, or has ended
-- TWICE      the same; nothing is changed
-- COST       O(N), N ids
local answer = redis.call('HMGET', KEYS[1], unpack(ARGV))
for i = 1, #ARGV do
  answer[i] = answer[i] or ''
end
return answer
