-- claims/replay: put what was dead-lettered back into its queue, as if it were new.
--
-- KEYS[1]  bodies    hash  id -> 'enqueued_ms envelope'
-- KEYS[2]  dead      zset  id -> when it was dead-lettered, server ms
-- KEYS[3]  reasons   hash  id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[4]  failures  hash  id -> attempts that failed
-- KEYS[5]  crashes   hash  id -> workers that died with it
-- KEYS[6]  queue     list  ids, the next one first
-- KEYS[7]  bell      list  at most one token
-- KEYS[8]  unique    hash  unique name -> id of the job that has it, and when its window ends, or 0
-- KEYS[9]  checks    zset  unique name -> when to look whether it is still taken, server ms
-- KEYS[10] outcomes  hash  id -> what became of a job that has children
-- KEYS[11] recent    hash  request -> its answer, 120 s
-- KEYS[12] older     hash  the same, from before; at most 120 s
-- ARGV[1]  id        string
-- ARGV[2]  envelope  JSON, or '' for the one that it has
-- ARGV[3]  name      its unique name, which it has again unless another has it now; or ''
-- ARGV[4]  request   string, unique to this call
-- RETURNS  1 it is in the queue | 0 it is not among the dead
-- TWICE    the same, and nothing is changed, even if it was dead-lettered again in between
-- COST     O(log N), N dead jobs
-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include live_job_of_name
-- @include take_name
local bodies, dead, reasons, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local queue, bell, unique, checks, outcomes = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local recent, older = KEYS[11], KEYS[12]
local id, envelope, name, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- Both are read before anything is changed: a key that is not ours stops the script here.
redis.call('LLEN', queue)
redis.call('LLEN', bell)
local now_ms = math.floor(server_time() / 1000)
local was_dead = redis.call('ZREM', dead, id)
remember(recent, older, request, was_dead)
if was_dead == 0 then
  return 0
end
for _, key in ipairs({reasons, failures, crashes, outcomes}) do
  redis.call('HDEL', key, id)
end
if envelope == '' then
  envelope = string.gsub(redis.call('HGET', bodies, id) or '', '^%d+ ', '', 1)
end
redis.call('HSET', bodies, id, string.format('%.0f ', now_ms) .. envelope)
if name ~= '' and not live_job_of_name(unique, bodies, dead, name, now_ms) then
  take_name(unique, checks, id, name, '0', now_ms)
end
redis.call('RPUSH', queue, id)
ring(bell)
return 1
