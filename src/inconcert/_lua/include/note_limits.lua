-- Notes that a job with these limits, '/N:LIMIT...', has left its queue. Returns the first limit in which no place is left.
local function note_limits(limited, limits, at)
  local full
  for n, limit in string.gmatch(limits, '/(%d+):(%x+)') do
    local known = limited.known[limit]
    if not known then
      known = {count = tonumber(redis.call('HGET', limited.places, limit) or 0), left = 0, most = 0, at = at}
      limited.known[limit] = known
    end
    known.left, known.most = known.left + 1, math.max(known.most, tonumber(n))
    full = full or known.count >= tonumber(n) and limit or nil
  end
  return full
end
