-- Removes holders whose lease has lapsed, at most 100 of them, and notes beside the fencing token that one was lost.
-- Returns the stopped sessions, as keys: a lease that was handed over ends at half a millisecond until its holder
-- extends it, so one that has lapsed there was never extended.
-- @include mark_lost
local function drop_lapsed(holders, fence, now_ms)
  local lapsed = redis.call('ZRANGEBYSCORE', holders, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 100)
  local still, is_loss = {}, false
  for i = 1, #lapsed, 2 do
    redis.call('ZREM', holders, lapsed[i])
    is_loss = is_loss or not string.find(lapsed[i], '+', 1, true)  -- of a wide holder the first permit comes first, once
    if lapsed[i + 1] % 1 >= .5 then
      still[string.match(lapsed[i], '^(.*)%.')] = true
    end
  end
  if is_loss then
    mark_lost(fence)
  end
  return still
end
