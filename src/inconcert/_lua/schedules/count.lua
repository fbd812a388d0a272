-- schedules/count: how many schedules there are, and for how long no worker has looked at them.
--
-- KEYS  schedules looks paused_schedules looked
-- RETURNS  {all, paused, unfollowed_ms}: how many there are, and are paused; for how long no worker has looked, 0 if there is
--          nothing to look at, -1 if none has looked in 30 days
-- TWICE    the same
-- COST     O(1)
-- @include server_time
local unfollowed_ms = 0
if redis.call('ZCARD', looks) > 0 then
  local looked_ms = redis.call('GET', looked)
  unfollowed_ms = looked_ms and math.max(0, math.floor(server_time() / 1000) - looked_ms) or -1
end
return {redis.call('HLEN', schedules), redis.call('SCARD', paused_schedules), unfollowed_ms}
