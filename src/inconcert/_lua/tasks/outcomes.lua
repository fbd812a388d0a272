-- tasks/outcomes: the outcomes of a job's parents.
--
-- KEYS  outcomes
-- ARGV  ids..  1 to 100
-- RETURNS  {outcome or '', ...}, in the order of the ids; only of the first ones if these exceed 1 MiB
-- TWICE    the same; nothing is changed
-- COST     O(N), N ids
-- @include if_small
local answer, bytes = {}, 0
for i = IDS, #ARGV do
  if bytes >= 1048576 then
    break
  end
  answer[i] = redis.call('HGET', outcomes, ARGV[i]) or ''
  bytes = bytes + #answer[i]
end
return if_small(answer, bytes)
