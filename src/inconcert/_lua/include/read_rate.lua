-- How far a rate, 'rINTERVAL_US,BURST_US:LIMIT' of a job that was enqueued at `put_ms`, or 0, is used up: until `used_us` so much
-- of it is gone as has begun.  A job may begin if that leaves room for one in the burst.  Interval and burst are as the job says
-- that was enqueued last, at `at_ms`, of those that were looked at.  `next_id` is the job that was told to come next, due at
-- `due_ms`.  `rates` has what was read before.
local function read_rate(rates, places, text, put_ms, now_us)
  local interval_us, burst_us, limit = string.match(text, '^r(%d+),(%d+):(%x+)$')
  local rate = rates[limit]
  if not rate then
    local used_us, due_ms, interval, burst, at_ms, next_id =
      string.match(redis.call('HGET', places, limit) or '0 0 0 0 0 ', '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    rate = {limit = limit, interval_us = tonumber(interval), burst_us = tonumber(burst), at_ms = tonumber(at_ms)}
    rate.used_us, rate.due_ms, rate.next_id = tonumber(used_us), tonumber(due_ms), next_id
    rates[limit] = rate
  end
  if tonumber(put_ms) >= rate.at_ms then  -- the later one is in force
    rate.interval_us, rate.burst_us, rate.at_ms = tonumber(interval_us), tonumber(burst_us), tonumber(put_ms)
  end
  rate.used_us = math.min(math.max(rate.used_us, now_us), now_us + rate.burst_us)  -- also if the clock was set back
  return rate
end
