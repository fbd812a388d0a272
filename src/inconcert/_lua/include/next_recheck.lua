-- Milliseconds until the next re-check: when the next claim may have lapsed, and within 30 minutes, to keep the line alive.
local function next_recheck(claims, now_ms)
  local ends = redis.call('ZRANGE', claims, 0, 0, 'WITHSCORES')[2]
  return math.min(1800000, math.max(1, (ends or now_ms + 1800000) - now_ms))
end
