-- tasks/store_anew: a job that was claimed gets another envelope, with the limits that it lacked, and goes back.
--
-- KEYS[1]  claimed   hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[3]  queue     list    ids, the next one first; of the queue to which it goes
-- KEYS[4]  bell      list    at most one token
-- KEYS[5]  states    hash    id -> where it is, if not in its queue
-- KEYS[6]  watchers  zset    'id address': which processes wait for its end
-- KEYS[7]  workers   zset    worker -> when it is presumed dead, ms by the lease clock; of those that hold something
-- KEYS[8]  idle      zset    worker -> when it is presumed dead, ms by the lease clock; of those that hold nothing; 1 h
-- KEYS[9]  finished  hash    queue name -> jobs that have succeeded or were cancelled; the names of all queues are there
-- ARGV[1]  id        string
-- ARGV[2]  place     integer, as it was claimed
-- ARGV[3]  envelope  string, signed, with what scripts are to know of it
-- ARGV[4]  name      of the queue
-- ARGV[5]  inboxes   what the channel of each session's inbox begins with
-- ARGV[6]  worker    string
-- RETURNS  1 done | 0 the worker does not hold it at this place
-- TWICE    0: it is not held any more
-- COST     O(log N), N workers
-- @include fall_idle
-- @include requeue
local claimed, bodies, queue, bell, states, watchers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local workers, idle, finished = KEYS[7], KEYS[8], KEYS[9]
local id, place, envelope, name, inboxes, worker = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local claim = redis.call('HGET', claimed, id)
if not claim or string.match(claim, '^%d+') ~= place then
  return 0
end
-- Both are read before anything is changed: a key that is not ours stops the script here.
redis.call('LLEN', queue)
redis.call('LLEN', bell)
local enqueued = string.match(redis.call('HGET', bodies, id) or '', '^%d+ ')
redis.call('HDEL', claimed, id)  -- first: it frees memory, so a full server lets the rest pass
fall_idle(workers, idle, claimed, worker)
if enqueued then
  redis.call('HSET', bodies, id, enqueued .. envelope)
  redis.call('HSETNX', finished, name, 0)
  requeue(queue, bell, states, watchers, inboxes, id)
end
return 1
