-- Sets a job aside that will not run again, with the reason.
local function bury(dead, reasons, id, now_ms, reason)
  redis.call('ZADD', dead, now_ms, id)
  redis.call('HSET', reasons, id, reason)
end
