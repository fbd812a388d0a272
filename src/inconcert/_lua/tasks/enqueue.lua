-- tasks/enqueue: add a job, to run now or later.
--
-- KEYS[1]  bodies    hash  id -> envelope; permanent until the job is done
-- KEYS[2]  queue     list  ids, the next one first; permanent until claimed
-- KEYS[3]  bell      list  at most one token
-- KEYS[4]  delayed   zset  id -> due time, server ms; permanent until due
-- ARGV[1]  id        string, unique to this job
-- ARGV[2]  envelope  JSON
-- ARGV[3]  delay_ms  integer >= 0
-- RETURNS  1 added | 0 it is there already
-- TWICE    0, as long as the job is not done
-- COST     O(log N), N delayed jobs of the queue
-- @include server_time
-- @include ring
-- @include put_off
local bodies, queue, bell, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, envelope, delay_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
if redis.call('HSETNX', bodies, id, envelope) == 0 then
  return 0
end
if delay_ms > 0 then
  put_off(delayed, bell, id, math.floor(server_time() / 1000) + delay_ms)
else
  redis.call('RPUSH', queue, id)
  ring(bell)
end
return 1
