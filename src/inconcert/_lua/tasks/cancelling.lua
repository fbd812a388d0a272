-- tasks/cancelling: which of a worker's jobs must be stopped.
--
-- KEYS  states
-- ARGV  ids..  of jobs that the worker holds
-- RETURNS  {id, ...}
-- TWICE    the same; nothing is changed
-- COST     O(N), N ids
local answer = {}
for i = IDS, #ARGV do
  if string.sub(redis.call('HGET', states, ARGV[i]) or '', 1, 10) == 'cancelling' then
    answer[#answer + 1] = ARGV[i]
  end
end
return answer
