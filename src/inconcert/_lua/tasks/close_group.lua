-- tasks/close_group: let no more members into a group, because all are in, or because it is cancelled.
--
-- KEYS[1]  groups   hash  group -> what has become of it; see read_group.lua
-- KEYS[2]  settled  zset  group -> when to forget it, server ms; of those that have ended
-- KEYS[3]  news     list  ids of jobs that have ended or may run now, not processed yet
-- ARGV[1]  group    id of the group
-- ARGV[2]  state    'closed' | 'cancelled'
-- RETURNS  {news, given}: 1 if others are to be told, otherwise 0; and how many numbers were given
--          | {-1, 0} there is no such group
-- TWICE    {0, given}, and changes nothing; one that was cancelled is not closed any more
-- COST     O(log N), N groups that have ended
-- @include read_group
-- @include write_group
local keys = {groups = KEYS[1], settled = KEYS[2], news = KEYS[3]}
local group, state = ARGV[1], ARGV[2]
redis.call('ZCARD', keys.settled)  -- a foreign key stops the script here
redis.call('LLEN', keys.news)
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
