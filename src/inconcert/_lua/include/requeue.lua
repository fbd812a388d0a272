-- Requeues a job at the front of its queue.  One that is to be cancelled stays marked, without a worker: waiters for its
-- end are notified, so that the canceller can end it now; otherwise its next claimer does.
-- @include ring
-- @include notify_watchers
local function requeue(queue, bell, states, watchers, inboxes, id)
  redis.call('LPUSH', queue, id)
  ring(bell)
  if string.sub(redis.call('HGET', states, id) or '', 1, 10) == 'cancelling' then
    redis.call('HSET', states, id, 'cancelling ')
    notify_watchers(watchers, inboxes, id)
  else
    redis.call('HDEL', states, id)
  end
end
