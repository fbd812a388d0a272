-- tasks/inspect_group: how far a group is.
--
-- KEYS  groups
-- ARGV  group  id of the group
-- RETURNS  {state, given, total, succeeded, failed, cancelled}: 'open' | 'closed' | 'cancelled'; the next member's number; the
--          members, and how many of them have ended | {} there is no such group
-- TWICE    the same, if nothing has changed
-- COST     O(1)
-- @include read_group
local found = read_group(groups, group)
return found and {found.state, found.given, found.total, found.succeeded, found.failed, found.cancelled} or {}
