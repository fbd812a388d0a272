-- Takes all its permits from a holder; returns 1 if it held them, otherwise 0.
-- @include units_of
local function drop_holder(holders, holder)
  local held = redis.call('ZREM', holders, holder)  -- the first to be dropped when they lapse
  local units = units_of(holder)
  if #units > 1 then
    redis.call('ZREM', holders, unpack(units))
  end
  return held
end
