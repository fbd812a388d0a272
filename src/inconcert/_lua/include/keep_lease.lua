-- Makes a lease last a full ttl from now, if it has not lapsed, and its key as long after; returns whether it had not.
-- @include units_of
-- @include follows_loss
local function keep_lease(holders, holder, ttl_ms, now_ms, after_ms)
  local ends = redis.call('ZSCORE', holders, holder)
  if not ends or tonumber(ends) <= now_ms then
    return false
  end
  -- First, because it needs no memory: after it a full server accepts the rest.
  redis.call('PEXPIRE', holders, math.max(ttl_ms + after_ms, redis.call('PTTL', holders)))
  ends = string.format('%.2f', now_ms + ttl_ms + (follows_loss(ends) and .25 or 0))
  for _, unit in ipairs(units_of(holder)) do
    redis.call('ZADD', holders, 'XX', ends, unit)
  end
  return true
end
