-- tasks/store_anew: a job that was claimed gets another envelope, with the limits that it lacked, and goes back.
--
-- KEYS  claimed bodies facts queue bell delayed states watchers workers finished
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- ARGV  envelope  string, signed, with what scripts are to know of it
-- ARGV  name      of the queue
-- ARGV  inboxes   what the channel of each session's inbox begins with
-- ARGV  worker    string
-- MOVES    claimed: back
-- RETURNS  1 done | 0 the worker does not hold it at this position
-- TWICE    0: it is not held any more
-- COST     O(log N), N workers
-- @include fall_idle
-- @include requeue
local claim = redis.call('HGET', claimed, id)
if not claim or string.match(claim, '^%d+') ~= position then
  return 0
end
-- All are read before anything is changed: a key that is not ours stops the script here.
-- @guard queue:list bell:list delayed:zset
local enqueued = string.match(redis.call('HGET', bodies, id) or '', '^%d+ ')
redis.call('HDEL', claimed, id)  -- first: it frees memory, so a full server lets the rest pass
fall_idle(workers, claimed, worker)
if enqueued then
  redis.call('HSET', bodies, id, enqueued .. envelope)
  redis.call('HSETNX', finished, name, 0)
  requeue(keys, queue, bell, delayed, inboxes, id)
end
return 1
