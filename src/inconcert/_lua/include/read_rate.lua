-- How far a rate, 'rINTERVAL_US,BURST_US:LIMIT', is used up: until `used_us` so much of it is gone as has begun.  A job may
-- begin if that leaves room for one in the burst.  `next_id` is the job that was told to come next, due at `due_ms`.
local function read_rate(places, text, now_us)
  local interval_us, burst_us, limit = string.match(text, '^r(%d+),(%d+):(%x+)$')
  local used_us, due_ms, next_id = string.match(redis.call('HGET', places, limit) or '0 0 ', '^(%d+) (%d+) (.*)$')
  local rate = {limit = limit, interval_us = tonumber(interval_us), burst_us = tonumber(burst_us)}
  rate.used_us = math.min(math.max(tonumber(used_us), now_us), now_us + rate.burst_us)  -- also if the clock was set back
  rate.due_ms, rate.next_id = tonumber(due_ms), next_id
  return rate
end
