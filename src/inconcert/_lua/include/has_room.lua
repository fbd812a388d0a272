-- Whether one more may hold, by the caller's limit. A holder whose name ends in 'w' is exclusive.
local function has_room(holders, limit)
  local held = redis.call('ZCARD', holders)
  return held < limit and (held ~= 1 or string.sub(redis.call('ZRANGE', holders, 0, 0)[1], -1) ~= 'w')
end
