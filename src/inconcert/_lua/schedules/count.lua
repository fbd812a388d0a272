-- schedules/count: how many schedules there are, and for how long no worker has looked at them.
--
-- KEYS[1]  schedules         hash    id -> 'SINCE LAST RULE'
-- KEYS[2]  looks             zset    id -> when a worker looks at it next, server ms
-- KEYS[3]  paused_schedules  set     ids
-- KEYS[4]  looked            string  when a worker looked last at those that are not in code, server ms
-- RETURNS  {all, paused, unfollowed_ms}: how many there are, and are paused; for how long no worker has looked, 0 if there is
--          nothing to look at, -1 if none has looked in 30 days
-- TWICE    the same
-- COST     O(1)
-- @include server_time
local schedules, looks, paused_schedules, looked = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local unfollowed_ms = 0
if redis.call('ZCARD', looks) > 0 then
  local looked_ms = redis.call('GET', looked)
  unfollowed_ms = looked_ms and math.max(0, math.floor(server_time() / 1000) - looked_ms) or -1
end
return {redis.call('HLEN', schedules), redis.call('SCARD', paused_schedules), unfollowed_ms}
