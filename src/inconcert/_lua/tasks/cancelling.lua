-- tasks/cancelling: which of a worker's jobs must be stopped.
--
-- KEYS[1]    states  hash    id -> where it is, unless in its queue
-- ARGV[1..]  ids     of jobs that the worker holds
-- RETURNS    {id, ...}
-- TWICE      the same; nothing is changed
-- COST       O(N), N ids
local states = KEYS[1]
local answer = {}
for i = 1, #ARGV do
  if string.sub(redis.call('HGET', states, ARGV[i]) or '', 1, 10) == 'cancelling' then
    answer[#answer + 1] = ARGV[i]
  end
end
return answer
