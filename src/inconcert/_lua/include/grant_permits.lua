-- The end of a limiter once `cost_us` are granted, to be used after `wait_us`: from then on permits come back in the caller's interval.
-- @include end_at_pace
local function grant_permits(end_us, pace_us, wait_us, cost_us, interval_us, now_us)
  local at_us = now_us + math.max(0, wait_us)
  return math.max(end_at_pace(end_us, pace_us, interval_us, at_us), at_us) + cost_us
end
