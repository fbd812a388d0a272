-- Notes that a job with these limits, enqueued at `put_ms`, has left its queue.  Returns the first in which there is no place, if
-- any: a rate before the others, which it has not left then, unless it `leaves` for good.
-- @include read_limit
-- @include read_rate
local function note_limits(limited, limits, put_ms, leaves)
  if limits.rate then
    local rate = read_rate(limited.rates, limited.places, limits.rate, put_ms, limited.now_us)
    if not leaves and rate.used_us + rate.interval_us > limited.now_us + rate.burst_us then
      return rate.limit
    end
  end
  local full
  for _, each in ipairs(limits.counts) do
    local limit = each.limit
    local known = limited.known[limit]
    if not known then
      known = read_limit(redis.call('HGET', limited.places, limit))
      known.left, limited.known[limit] = 0, known
    end
    if put_ms >= known.at_ms then  -- the later one is in force
      known.most, known.at_ms = each.most, put_ms
    end
    known.left = known.left + (each.is_of_key and 0 or 1)  -- a turn comes otherwise
    full = full or known.count >= known.most and limit or nil
  end
  return full
end
