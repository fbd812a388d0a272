-- members/renew: make a membership last longer, if it has not lapsed, and drop those that have.
--
-- KEYS[1]  members  zset    member -> lease end, server ms
-- KEYS[2]  values   hash    member -> its value, JSON
-- KEYS[3]  state    hash    version -> of the last change; turn:MEMBER -> the last turn of its claims
-- KEYS[4]  claims   hash    key -> 'TOKEN MEMBER' that has it
-- KEYS[5]  look     string  the member that looks when the next lease ends; until then
-- ARGV[1]  member   string
-- ARGV[2]  ttl_ms   integer > 0
-- ARGV[3]  changes  channel of the group
-- RETURNS  {1, version, look_ms}: renewed; the version of the group; milliseconds after which this member renews again to
--          look, because a lease ends that others have not renewed in time, or 0 | {0} not a member, or lapsed
-- TWICE    the same, counted from the second run
-- COST     O(log N), N members; O(W) for each that has lapsed, W processes that listen
-- @include server_time
-- @include keep_lease
-- @include drop_members
-- @include keep_members
local members, values, state, claims, look = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local member, ttl_ms, changes = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
drop_members(members, values, state, changes, now_us)
if not keep_lease(members, member, ttl_ms, now_ms, 0) then
  return {0}
end
keep_members(members, values, state, claims, ttl_ms)
local look_ms = 0
local left_ms = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')[2] - now_ms
if left_ms < ttl_ms / 3 then  -- a live member renews before: it is dead, or late
  left_ms = math.max(1, left_ms)
  if redis.call('SET', look, member, 'PX', left_ms, 'NX') or redis.call('GET', look) == member then
    look_ms = left_ms
  end
end
return {1, redis.call('HGET', state, 'version') or '0', look_ms}
