-- Removes holders whose lease has lapsed, at most 100 of them.
local function drop_lapsed(holders, now_ms)
  local lapsed = redis.call('ZRANGEBYSCORE', holders, '-inf', now_ms, 'LIMIT', 0, 100)
  if #lapsed > 0 then
    redis.call('ZREM', holders, unpack(lapsed))
  end
end
