-- permits/drop: release a permit without serving the line, for while the line cannot be read because its slot moves.
--
-- KEYS  holders
-- ARGV  holder  string  'session.number'
-- RETURNS  1 it was held | 0 not held
-- TWICE    0, and nothing is changed
-- COST     O(log N), N holders
-- @include drop_holder
return drop_holder(holders, holder)
