-- Whether one more may hold, by the limit of the one who asks. A holder whose name ends in 'w' has nobody beside it.
local function has_room(holders, limit)
  local held = redis.call('ZCARD', holders)
  return held < limit and (held ~= 1 or string.sub(redis.call('ZRANGE', holders, 0, 0)[1], -1) ~= 'w')
end
