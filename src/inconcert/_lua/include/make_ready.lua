-- Makes a job that waited for others ready: now, or when its delay is over.
-- @include put_ready
-- @include ring
-- @include delay_job
local function make_ready(facts, queue, bell, delayed, states, id, delay_ms, now_ms, queue_name)
  if delay_ms == '0' then
    redis.call('HDEL', states, id)
    put_ready(facts, queue, delayed, {id}, 'RPUSH')
    ring(bell)
  else
    delay_job(delayed, bell, states, id, now_ms + delay_ms, queue_name)
  end
end
