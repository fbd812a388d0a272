-- tasks/states: where jobs are.
--
-- KEYS  states
-- ARGV  ids..  of the jobs, 1 to 250
-- RETURNS  {state, ...}, in their order: '' if a job is in its queue, or has ended
-- TWICE    the same; nothing is changed
-- COST     O(N), N ids
local answer = redis.call('HMGET', states, unpack(ARGV))
for i = IDS, #ARGV do
  answer[i] = answer[i] or ''
end
return answer
