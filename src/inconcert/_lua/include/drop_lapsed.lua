-- Removes holders whose lease has lapsed, at most 100 of them.
-- Returns the stopped sessions, as keys: a lease that was handed over ends at half a millisecond until its holder
-- extends it, so one that has lapsed there was never extended.
local function drop_lapsed(holders, now_ms)
  local lapsed = redis.call('ZRANGEBYSCORE', holders, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 100)
  local still = {}
  for i = 1, #lapsed, 2 do
    redis.call('ZREM', holders, lapsed[i])
    if lapsed[i + 1] % 1 > 0 then
      still[string.match(lapsed[i], '^(.*)%.')] = true
    end
  end
  return still
end
