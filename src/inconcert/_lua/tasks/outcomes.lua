-- tasks/outcomes: what became of the jobs that one runs after.
--
-- KEYS[1]    outcomes  hash  id -> what became of a job that has children: 'succeeded JSON' | 'failed REASON' | 'cancelled '
-- ARGV[1..]  ids       1 to 100
-- RETURNS    {outcome or '', ...}, in the order of the ids
-- TWICE      the same; nothing is changed
-- COST       O(N), N ids
local answer = redis.call('HMGET', KEYS[1], unpack(ARGV, 1))
for i = 1, #ARGV do
  answer[i] = answer[i] or ''
end
return answer
