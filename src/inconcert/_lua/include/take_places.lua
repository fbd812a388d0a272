-- Whether a job may be claimed: it has no limits; or it is the turn of its key, and there is a place in each limit, which it
-- takes; or it has expired, and needs none, but in strict order its turn.  Otherwise it is held back, in the line of its key, or of
-- the first limit that is full.  `state` is the job's, nil if it was not asked for.  What is to be written gathers in `limited`, for
-- `settle_places`.
-- @include add_wait
-- @include head_of
-- @include next_order
-- @include note_limits
-- @include parse_limits
-- @include pass_over
local function take_places(limited, id, text, state)
  local put_ms, _, limits, _, first_ms = head_of(text)
  if not limits then
    return true
  end
  put_ms, limits = tonumber(put_ms), parse_limits(limited.parsed, limits)
  local key, order = limits.key, limits.order
  local turn = (key or order) and redis.call('HGET', limited.places, '@' .. (key or order))
  if order and not turn then  -- it has the turn until it has ended
    redis.call('HSET', limited.places, '@' .. order, id, '=' .. id, order)
    turn = id
  end
  local is_late = turn ~= nil and turn ~= id  -- it is not its turn
  local undo = limited.some_undo and redis.call('HGET', limited.undo, id)
  local has_expired = limits.expires_ms and limited.now_us > (put_ms + limits.expires_ms + 1) * 1000
  if has_expired and (not undo or undo == '-') and not (order and is_late) then
    pass_over(limited, id, limits, put_ms)
    return true  -- its worker dead-letters it
  end
  local full = not is_late and note_limits(limited, limits, put_ms)
  local is_ending, line = false, is_late and (key or order) or full
  if line then
    state = state == nil and redis.call('HGET', limited.states, id) or state  -- nil if it was not asked for
    is_ending = undo and undo ~= '-' or string.sub(state or '', 1, 10) == 'cancelling'
  end
  if is_late or is_ending then
    pass_over(limited, id, limits, put_ms)
  elseif key and (not full or full == key) then
    redis.call('HDEL', limited.places, '@' .. key)  -- otherwise it keeps its turn, so only one of each key is in that line
  end
  if key then
    limited.turns[key] = limits.text
  end
  if line and not is_ending then
    local is_last = line == order or key and line ~= key
    local place = is_last and next_order(limited, line) or tonumber(first_ms) or put_ms
    local expires_ms = not order and limits.expires_ms and put_ms + limits.expires_ms + 2
    limited.due_ms = expires_ms and math.min(expires_ms, limited.due_ms or expires_ms) or limited.due_ms
    limited.held[#limited.held + 1] = {id = id, limit = line, order = place, is_ready = key and is_late and not limits.key_counts,
      expires = expires_ms}
  end
  if line and not is_ending and limits.wait and line == limits.wait.line then
    add_wait(limited, limits.wait)
  end
  if line then
    return is_ending  -- it needs no place for that
  end
  local wait = limits.wait
  if wait and wait.rate then
    local rate = limited.rates[wait.of_rate]
    local cost_us = math.min(wait.cost * rate.interval_us, rate.burst_us)
    rate.used_us, rate.debt_us = rate.used_us + cost_us, rate.debt_us + cost_us
  end
  if limits.rate then
    local rate = limited.rates[limits.of_rate]
    rate.used_us, rate.debt_us = rate.used_us + rate.interval_us, rate.debt_us + rate.interval_us
  end
  if #limits.counts > 0 then
    limited.taken[#limited.taken + 1], limited.taken[#limited.taken + 2] = id, limits.text
  end
  for _, each in ipairs(limits.counts) do
    limited.known[each.limit].count = limited.known[each.limit].count + 1
  end
  return true
end
