-- Dead-letters a job that will not run again, with the reason and the queue that it came from.
local function dead_letter(dead, reasons, id, now_ms, reason, queue_name)
  redis.call('ZADD', dead, now_ms, id)
  redis.call('HSET', reasons, id, reason .. '\n' .. queue_name)
end
