-- Makes a lease last a full ttl from now, if it has not lapsed; returns whether it had not.
-- @include units_of
local function keep_lease(holders, holder, ttl_ms, now_ms)
  local ends = redis.call('ZSCORE', holders, holder)
  if not ends or tonumber(ends) <= now_ms then
    return false
  end
  -- First, because it needs no memory: after it a full server accepts the rest.
  redis.call('PEXPIRE', holders, math.max(ttl_ms, redis.call('PTTL', holders)))
  for _, unit in ipairs(units_of(holder)) do
    redis.call('ZADD', holders, 'XX', now_ms + ttl_ms, unit)
  end
  return true
end
