-- members/join: become a member of a group.
--
-- KEYS[1]  members  zset    member -> lease end, server ms
-- KEYS[2]  values   hash    member -> its value, JSON
-- KEYS[3]  state    hash    version -> of the last change; turn:MEMBER -> the last turn of its claims
-- KEYS[4]  claims   hash    key -> 'TOKEN MEMBER' that has it
-- KEYS[5]  recent   hash    member -> 'LAST_VERSION VERSION' of its joining, or 'left'; 120 s
-- KEYS[6]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  member   string, unique to this call
-- ARGV[2]  value    JSON
-- ARGV[3]  ttl_ms   integer > 0
-- ARGV[4]  changes  channel of the group
-- RETURNS  'LAST_VERSION VERSION joined MEMBER VALUE', as it was published
-- TWICE    the same, and nothing is changed; 'left joined MEMBER VALUE' if it has left in between
-- COST     O(log N + W), N members, W processes that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include drop_members
-- @include tell_members
-- @include keep_members
local members, values, state, claims, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local member, value, ttl_ms, changes = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
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
