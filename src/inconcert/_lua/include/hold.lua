-- Gives a holder its permits, until this end.
-- @include units_of
local function hold(holders, holder, ends)
  for _, unit in ipairs(units_of(holder)) do
    redis.call('ZADD', holders, ends, unit)
  end
end
