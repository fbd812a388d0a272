-- How long it is until a caller of this interval may use `cost_us`, if those in line want `queued_us`; below 0, it could have used
-- them before.  Permits come back each `pace_us`, which is at most its interval.
local function limiter_wait(end_us, pace_us, queued_us, cost_us, burst_us, interval_us, now_us)
  local room_us = burst_us - cost_us
  if pace_us ~= interval_us then
    room_us = math.floor(room_us * pace_us / interval_us)
  end
  return math.max(end_us, now_us) + queued_us - room_us - now_us
end
