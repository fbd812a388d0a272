-- members/update: change the value of a member.
--
-- KEYS[1]  members  zset    member -> lease end, server ms
-- KEYS[2]  values   hash    member -> its value, JSON
-- KEYS[3]  state    hash    version -> of the last change; turn:MEMBER -> the last turn of its claims
-- KEYS[4]  recent   hash    request -> 'LAST_VERSION VERSION' of its change; 120 s
-- KEYS[5]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  member   string
-- ARGV[2]  value    JSON
-- ARGV[3]  request  string, unique to this call
-- ARGV[4]  changes  channel of the group
-- RETURNS  'LAST_VERSION VERSION changed MEMBER VALUE', as it was published | '' not a member, or lapsed
-- TWICE    the same, and nothing is changed, even if the value was changed in between
-- COST     O(log N + W), N members, W processes that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include drop_members
-- @include tell_members
local members, values, state, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, value, request, changes = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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
