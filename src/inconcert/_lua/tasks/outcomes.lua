-- tasks/outcomes: the outcomes of a job's parents.
--
-- KEYS[1]    outcomes  hash  id -> outcome of a job that has children: 'succeeded JSON' | 'failed REASON' | 'cancelled '
-- ARGV[1..]  ids       1 to 100
-- RETURNS    {outcome or '', ...}, in the order of the ids; only of the first ones if these exceed 1 MiB
-- TWICE      the same; nothing is changed
-- COST       O(N), N ids
-- @include if_small
local outcomes = KEYS[1]
local answer, bytes = {}, 0
for i = 1, #ARGV do
  if bytes >= 1048576 then
    break
  end
  answer[i] = redis.call('HGET', outcomes, ARGV[i]) or ''
  bytes = bytes + #answer[i]
end
return if_small(answer, bytes)
