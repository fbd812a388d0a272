-- members/leave: end a membership, and with it all that it has claimed.
--
-- KEYS[1]  members  zset    member -> lease end, server ms
-- KEYS[2]  values   hash    member -> its value, JSON
-- KEYS[3]  state    hash    version -> of the last change; turn:MEMBER -> the last turn of its claims
-- KEYS[4]  recent   hash    member -> 'LAST_VERSION VERSION' of its joining, or 'left'; 120 s
-- KEYS[5]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  member   string; if its joining runs after this, it does not become one
-- ARGV[2]  changes  channel of the group
-- RETURNS  1 left | 0 was not a member, or had lapsed
-- TWICE    0, and nothing is changed
-- COST     O(log N + W), N members, W processes that listen
-- @include server_time
-- @include remember
-- @include drop_members
-- @include tell_members
local members, values, state, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, changes = ARGV[1], ARGV[2]
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
