-- The end of a limiter, and the interval in which a permit comes back, for a caller of this interval: permits that callers of a longer
-- one took come back in its own from now on.  As many as were out stay out.
-- @include end_at_pace
local function quicken(end_us, pace_us, interval_us, now_us)
  if end_us > now_us and pace_us <= interval_us then
    return end_us, pace_us
  end
  return end_at_pace(end_us, pace_us, interval_us, now_us), interval_us
end
