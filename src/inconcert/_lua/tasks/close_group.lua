-- tasks/close_group: let no more members into a group, because all are in, or because it is cancelled.
--
-- KEYS  groups settled news
-- ARGV  group  id of the group
-- ARGV  state  'closed' | 'cancelled'
-- RETURNS  {news, given}: 1 if others are to be told, otherwise 0; and how many numbers were given
--          | {-1, 0} there is no such group
-- TWICE    {0, given}, and changes nothing; one that was cancelled is not closed any more
-- COST     O(log N), N groups that have ended
-- @include read_group
-- @include write_group
-- @guard keys.settled:zset keys.news:list
local known = read_group(keys.groups, group)
if not known then
  return {-1, 0}
end
local has_news = false
if known.state == 'open' or (known.state == 'closed' and state == 'cancelled') then
  known.state = state
  has_news = write_group(keys, group, known)
end
return {has_news and 1 or 0, known.given}
