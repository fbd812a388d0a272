-- tasks/nack: a job was not done: let it wait for another attempt, put it back, or set it aside.
--
-- KEYS[1]  claimed   hash  id -> 'attempt place queue-name'; of this worker
-- KEYS[2]  failures  hash  id -> attempts that failed
-- KEYS[3]  dead      zset  id -> when it was set aside, server ms; permanent until replayed or purged
-- KEYS[4]  reasons   hash  id -> why it was set aside, JSON; permanent as dead
-- KEYS[5]  queue     list  ids, the next one first
-- KEYS[6]  bell      list  at most one token
-- KEYS[7]  delayed   zset  id -> due time, server ms
-- ARGV[1]  id        string
-- ARGV[2]  attempt   integer, as it was claimed
-- ARGV[3]  verdict   'retry' this attempt failed | 'back' it was no attempt | 'dead' it gave up
-- ARGV[4]  delay_ms  integer >= 0, before a retry
-- ARGV[5]  reason    JSON, of the dead
-- RETURNS  1 done | 0 the worker does not hold it at this attempt
-- TWICE    0: it is not held any more
-- COST     O(log N), N jobs delayed or dead
-- @include server_time
-- @include ring
-- @include put_off
-- @include bury
local claimed, failures, dead, reasons, queue, bell, delayed =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, attempt, verdict, delay_ms, reason = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local claim = redis.call('HGET', claimed, id)
if not claim or string.match(claim, '^%d+') ~= attempt then
  return 0
end
local now_ms = math.floor(server_time() / 1000)
redis.call('HDEL', claimed, id)  -- first: it frees memory, so a full server lets the rest pass
if verdict == 'back' then
  redis.call('LPUSH', queue, id)
  ring(bell)
else
  redis.call('HINCRBY', failures, id, 1)
  if verdict == 'retry' then
    put_off(delayed, bell, id, now_ms + delay_ms)
  else
    bury(dead, reasons, id, now_ms, reason)
  end
end
return 1
