-- Requeues a job at the front of its queue, or of its priority.  One that is to be cancelled stays marked, without a worker:
-- waiters for its end are notified, so that the canceller can end it now; otherwise its next claimer does.
-- @include put_ready
-- @include ring
-- @include flag
-- @include notify_watchers
local function requeue(keys, queue, bell, delayed, inboxes, id)
  put_ready(keys.facts, queue, delayed, {id}, 'LPUSH')
  ring(bell)
  if string.sub(redis.call('HGET', keys.states, id) or '', 1, 10) == 'cancelling' then
    redis.call('HSET', keys.states, id, 'cancelling ')
    flag(keys.facts, id, 'x')
    notify_watchers(keys.watchers, inboxes, id)
  else
    redis.call('HDEL', keys.states, id)
  end
end
