-- Delays a job until it is due.  If nothing is due before it, wakes a consumer, so that one knows when to check; but with
-- false in place of the bell, none.
-- @include ring
local function delay_job(delayed, bell, states, id, due_ms, queue_name)
  redis.call('ZADD', delayed, due_ms, id)
  redis.call('HSET', states, id, 'delayed ' .. queue_name)
  if bell and redis.call('ZRANGEBYSCORE', delayed, 0, '+inf', 'LIMIT', 0, 1)[1] == id then
    ring(bell)
  end
end
