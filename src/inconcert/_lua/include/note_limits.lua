-- Notes that a job with these limits, enqueued at `put_ms`, has left its queue.  Returns the first in which there is no place, if
-- any: a rate before the others, which it has not left then, unless it `leaves` for good.  What others were let in for, or may be,
-- is for tasks/let_in: then `limited.asks`.
-- @include leave_queue
-- @include may_pass
-- @include read_rate
-- @include stored_limit
local function note_limits(limited, limits, put_ms, leaves)
  if limits.rate then
    local rate = read_rate(limited.rates, limited.places, limits.rate, put_ms, limited.now_us)
    if not leaves and rate.used_us + rate.interval_us > limited.now_us + rate.burst_us then
      return rate.limit
    end
  end
  local wait = limits.wait
  local was_let_in = wait and leave_queue(limited, wait)
  if wait and not may_pass(limited, wait, put_ms, was_let_in) and not leaves then
    limited.asks = true
    return wait.line
  end
  local full
  for _, each in ipairs(limits.counts) do
    local known = stored_limit(limited, each, put_ms)
    if not each.is_named then
      known.left = known.left + (each.is_of_key and 0 or 1)  -- a turn comes otherwise
      full = full or known.count >= known.most and each.limit or nil
    end
  end
  limited.asks = limited.asks or was_let_in and (leaves or full)
  return full
end
