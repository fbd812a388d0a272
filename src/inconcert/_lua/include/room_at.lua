-- When a rate has room for a job of this cost after others, server us; one that costs more than the burst takes all of it.
local function room_at(rate, others, cost)
  return rate.used_us + others * rate.interval_us + math.min(cost * rate.interval_us, rate.burst_us) - rate.burst_us
end
