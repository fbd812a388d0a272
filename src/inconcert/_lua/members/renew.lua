-- members/renew: make a membership last longer, if it has not lapsed, and drop those that have.
--
-- KEYS  members values state claims look
-- ARGV  member   string
-- ARGV  ttl_ms   number > 0
-- ARGV  changes  channel of the group
-- RETURNS  {1, version, look_ms}: renewed; the version of the group; milliseconds after which this member renews again to
--          look, because a lease ends that others have not renewed in time, or 0 | {0} not a member, or lapsed
-- TWICE    the same, counted from the second run
-- COST     O(log N), N members; O(W) for each that has lapsed, W processes that listen
-- @include server_time
-- @include keep_lease
-- @include drop_members
-- @include keep_members
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
