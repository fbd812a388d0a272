-- members/leave: end a membership, and with it all that it has claimed.
--
-- KEYS  members values state recent older
-- ARGV  member   string; if its joining runs after this, it does not become one
-- ARGV  changes  channel of the group
-- RETURNS  1 left | 0 was not a member, or had lapsed
-- TWICE    0, and nothing is changed
-- COST     O(log N + W), N members, W processes that listen
-- @include server_time
-- @include remember
-- @include drop_members
-- @include tell_members
local now_us = server_time()
drop_members(members, values, state, changes, now_us)
local left = redis.call('ZREM', members, member)
if left == 1 then
  redis.call('HDEL', values, member)
  redis.call('HDEL', state, 'turn:' .. member)
  tell_members(state, changes, now_us, 'left ' .. member)
end
remember(recent, older, member, 'left')
return left
