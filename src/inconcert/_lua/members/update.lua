-- members/update: change the value of a member.
--
-- KEYS  members values state recent older
-- ARGV  member   string
-- ARGV  value    JSON
-- ARGV  request  string, unique to this call
-- ARGV  changes  channel of the group
-- RETURNS  'LAST_VERSION VERSION changed MEMBER VALUE', as it was published | '' not a member, or lapsed
-- TWICE    the same, and nothing is changed, even if the value was changed in between
-- COST     O(log N + W), N members, W processes that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include drop_members
-- @include tell_members
local change = 'changed ' .. member .. ' ' .. value
local versions = recall(recent, older, request)
if versions then
  return versions .. ' ' .. change
end
local now_us = server_time()
drop_members(members, values, state, changes, now_us)
if not redis.call('ZSCORE', members, member) then
  return ''
end
redis.call('HSET', values, member, value)
local told = tell_members(state, changes, now_us, change)
remember(recent, older, request, string.match(told, '^%d+ %d+'))
return told
