-- A limiter's state, and what it is for a caller whose permits come back one each `interval_us`: when all are back, what the line
-- wants, the interval in which one comes back, and the end as it is kept.
-- @include quicken
local function read_limiter(state, interval_us, now_us)
  local kept_us, queued_us, pace_us = string.match(redis.call('GET', state) or '0 0 0', '^(%d+) (%d+) (%d+)$')
  kept_us = tonumber(kept_us)
  local end_us
  end_us, pace_us = quicken(kept_us, tonumber(pace_us), interval_us, now_us)
  return end_us, tonumber(queued_us), pace_us, kept_us
end
