-- Notes that a job with these limits, '/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT...', has left its queue.  Returns the first
-- in which there is no place, if any, and whether that is a rate: then it has not left its other limits.
-- @include read_rate
local function note_limits(limited, limits)
  local text = string.match(limits, '^/(r[^/]+)')
  if text then
    local rate = limited.rates[text] or read_rate(limited.places, text, limited.now_us)
    limited.rates[text] = rate
    if rate.used_us + rate.interval_us > limited.now_us + rate.burst_us then
      return rate.limit, true
    end
  end
  local full
  local key = string.match(limits, '/s:(%x+)')
  for n, limit in string.gmatch(limits, '/(%d+):(%x+)') do
    local known = limited.known[limit]
    if not known then
      known = {count = tonumber(redis.call('HGET', limited.places, limit) or 0), left = 0, most = 0}
      limited.known[limit] = known
    end
    known.left, known.most = known.left + (limit ~= key and 1 or 0), math.max(known.most, tonumber(n))  -- a turn comes otherwise
    full = full or known.count >= tonumber(n) and limit or nil
  end
  return full
end
