-- Requeues a job at the front of its queue.  One that is to be cancelled stays marked, without a worker: waiters for its
-- end are notified, so that the canceller can end it now; otherwise its next claimer does.
-- @include ring
-- @include notify_watchers
local function requeue(keys, queue, bell, inboxes, id)
  redis.call('LPUSH', queue, id)
  ring(bell)
  if string.sub(redis.call('HGET', keys.states, id) or '', 1, 10) == 'cancelling' then
    redis.call('HSET', keys.states, id, 'cancelling ')
    notify_watchers(keys.watchers, inboxes, id)
  else
    redis.call('HDEL', keys.states, id)
  end
end
