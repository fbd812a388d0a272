-- Counts one more (1) or one less (-1) of the jobs of a queue that wait for others.
local function count_waiting(waiting, queue_name, change)
  if redis.call('HINCRBY', waiting, queue_name, change) == 0 then
    redis.call('HDEL', waiting, queue_name)
  end
end
