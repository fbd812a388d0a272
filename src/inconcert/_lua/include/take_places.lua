-- Whether a job may be claimed: it has no limits, or there is a place in each, which it takes.  Otherwise it is held back, in
-- the line of the first limit that is full.  What is to be written gathers in `limited`, for `settle_places`.
-- @include note_limits
-- @include pass_over
local function take_places(limited, id, text, at, queue_name)
  local put_ms, limits = string.match(text, '^(%d+) %d+(/%S+)')
  if not limits then
    return true
  end
  local full = note_limits(limited, limits, at)
  if full then
    local undo = limited.some_undo and redis.call('HGET', limited.undo, id)
    local is_ending = undo and undo ~= '-' or string.sub(redis.call('HGET', limited.states, id) or '', 1, 10) == 'cancelling'
    if is_ending then
      pass_over(limited, limits, at)
    else
      limited.held[#limited.held + 1] = {id = id, put_ms = put_ms, limit = full, at = at, queue_name = queue_name}
    end
    return is_ending  -- it needs no place for that
  end
  local rate = limited.rates[string.match(limits, '^/(r[^/]+)')]
  if rate then
    rate.used_us = rate.used_us + rate.interval_us
  end
  local counted = string.match(limits, '/%d.*$')
  limited.taken[#limited.taken + 1], limited.taken[#limited.taken + 2] = counted and id, counted
  for limit in string.gmatch(counted or '', ':(%x+)') do
    limited.known[limit].count = limited.known[limit].count + 1
  end
  return true
end
