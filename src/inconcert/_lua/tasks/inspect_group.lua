-- tasks/inspect_group: how far a group is.
--
-- KEYS[1]  groups  hash    group -> what has become of it; see read_group.lua
-- ARGV[1]  group   id of the group
-- RETURNS  {state, given, total, succeeded, failed, cancelled}: 'open' | 'closed' | 'cancelled'; the next member's number; the
--          members, and how many of them have ended | {} there is no such group
-- TWICE    the same, if nothing has changed
-- COST     O(1)
-- @include read_group
local group = read_group(KEYS[1], ARGV[1])
return group and {group.state, group.given, group.total, group.succeeded, group.failed, group.cancelled} or {}
