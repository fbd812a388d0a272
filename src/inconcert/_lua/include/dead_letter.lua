-- Dead-letters a job, or an item, that will not run again: it has its `id`, the `reason` and the name of its `queue`.
local function dead_letter(keys, job, now_ms)
  redis.call('ZADD', keys.dead, now_ms, job.id)
  redis.call('HSET', keys.reasons, job.id, job.reason .. '\n' .. job.queue)
  -- @each on_dead(keys, job, now_ms)
end
