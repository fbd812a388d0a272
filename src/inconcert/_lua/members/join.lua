-- members/join: become a member of a group.
--
-- KEYS  members values state claims recent older
-- ARGV  member   string, unique to this call
-- ARGV  value    JSON
-- ARGV  ttl_ms   number > 0
-- ARGV  changes  channel of the group
-- RETURNS  'LAST_VERSION VERSION joined MEMBER VALUE', as it was published
-- TWICE    the same, and nothing is changed; 'left joined MEMBER VALUE' if it has left in between
-- COST     O(log N + W), N members, W processes that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include drop_members
-- @include tell_members
-- @include keep_members
local change = 'joined ' .. member .. ' ' .. value
local versions = recall(recent, older, member)
if versions then
  return versions .. ' ' .. change
end
local now_us = server_time()
drop_members(members, values, state, changes, now_us)
redis.call('ZADD', members, math.floor(now_us / 1000) + ttl_ms, member)
redis.call('HSET', values, member, value)
local told = tell_members(state, changes, now_us, change)
keep_members(members, values, state, claims, ttl_ms)
remember(recent, older, member, string.match(told, '^%d+ %d+'))
return told
