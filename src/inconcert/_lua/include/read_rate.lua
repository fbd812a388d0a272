-- How far a rate, 'rINTERVAL_US,BURST_US:LIMIT' of a job that was enqueued at `put_ms`, or 0, is used up: until `used_us` so much
-- of it is gone as has begun, and at most a burst.  A job may begin if that leaves room for one in the burst.  Interval and burst
-- are as the job says that was enqueued last, at `at_ms`, of those that were looked at.  When they change, as many count as have
-- begun: until `debt_us`, which no burst cuts, so that two releases in turn let no more begin than the faster.
-- `next_id` is the job that was told to come next, due at `due_ms`.  `rates` has what was read before.
local function read_rate(rates, places, text, put_ms, now_us)
  local interval_us, burst_us, limit = string.match(text, '^r(%d+),(%d+)k?:(%w+)$')
  local rate = rates[limit]
  if not rate then
    local used_us, due_ms, interval, burst, at_ms, debt_us, next_id = string.match(
      redis.call('HGET', places, limit) or '0 0 0 0 0 0 ', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    rate = {limit = limit, interval_us = tonumber(interval), burst_us = tonumber(burst), at_ms = tonumber(at_ms)}
    rate.used_us, rate.debt_us, rate.due_ms, rate.next_id = tonumber(used_us), tonumber(debt_us), tonumber(due_ms), next_id
    rate.is_of_key, rate.is_new = string.find(text, 'k:', 1, true), rate.burst_us == 0
    rates[limit] = rate
  end
  if tonumber(put_ms) >= rate.at_ms then  -- the later one is in force
    local were_us, are_us = rate.interval_us, tonumber(interval_us)
    if are_us ~= were_us or tonumber(burst_us) ~= rate.burst_us then
      rate.debt_us = now_us + math.ceil(math.max(0, rate.debt_us - now_us) * are_us / math.max(1, were_us))
      rate.used_us = rate.debt_us
    end
    rate.interval_us, rate.burst_us, rate.at_ms = are_us, tonumber(burst_us), tonumber(put_ms)
  end
  rate.used_us = math.min(math.max(rate.used_us, now_us), now_us + rate.burst_us)  -- also if the clock was set back
  rate.debt_us = math.max(rate.debt_us, rate.used_us)
  return rate
end
