-- tasks/forget: forget jobs of other partitions that ran after jobs of this one, and have ended.
--
-- KEYS  children followers outcomes
-- ARGV  relations..  parent, child: for each, at most 500
-- RETURNS  1
-- TWICE    1; they are forgotten already
-- COST     O(N log C), N relations given, C pairs of children
-- @include forget_child
for i = RELATIONS, #ARGV, 2 do
  forget_child(children, followers, outcomes, ARGV[i], ARGV[i + 1])
end
return 1
