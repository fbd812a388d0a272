-- tasks/forget: forget jobs of other partitions that ran after jobs of this one, and have ended.
--
-- KEYS[1]   children   zset  'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[2]   followers  zset  'id child', all of score 0: a child to resolve when the job of this id has ended
-- KEYS[3]   outcomes   hash  id -> outcome of a job that has children
-- ARGV[1..] relations  parent, child: for each, at most 500
-- RETURNS   1
-- TWICE     1; they are forgotten already
-- COST      O(N log C), N relations given, C pairs of children
-- @include forget_child
local children, followers, outcomes = KEYS[1], KEYS[2], KEYS[3]
for i = 1, #ARGV, 2 do
  forget_child(children, followers, outcomes, ARGV[i], ARGV[i + 1])
end
return 1
