-- Notes that a job with these limits, '/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT...', enqueued at `put_ms`, has left its queue.
-- Returns the first in which there is no place, if any, and whether that is a rate: then it has not left its other limits.
-- @include read_limit
-- @include read_rate
local function note_limits(limited, limits, put_ms)
  local text = string.match(limits, '^/(r[^/]+)')
  if text then
    local rate = read_rate(limited.rates, limited.places, text, put_ms, limited.now_us)
    if rate.used_us + rate.interval_us > limited.now_us + rate.burst_us then
      return rate.limit, true
    end
  end
  local full
  local key = string.match(limits, '/s:(%x+)')
  for n, limit in string.gmatch(limits, '/(%d+):(%x+)') do
    local known = limited.known[limit]
    if not known then
      known = read_limit(limited.places, limit)
      known.left, limited.known[limit] = 0, known
    end
    if tonumber(put_ms) >= known.at_ms then  -- the later one is in force
      known.most, known.at_ms = tonumber(n), tonumber(put_ms)
    end
    known.left = known.left + (limit ~= key and 1 or 0)  -- a turn comes otherwise
    full = full or known.count >= known.most and limit or nil
  end
  return full
end
