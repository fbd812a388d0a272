-- Whether one more may hold, with all its permits, by the caller's limit. A holder whose name ends in 'w' is exclusive.
-- @include units_of
local function has_room(holders, limit, holder)
  local held = redis.call('ZCARD', holders)
  local is_exclusive = held == 1 and string.sub(redis.call('ZRANGE', holders, 0, 0)[1], -1) == 'w'
  return held + #units_of(holder) <= limit and not is_exclusive
end
