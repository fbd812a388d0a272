-- tasks/ack_and_enqueue: a job is done: end it, and add the jobs that follow it.
--
-- KEYS  bodies claimed facts states watchers finished workers result kept_attempts queue bell delayed queues..
--       claimed: hash, of this worker
--       result: string  of the job: 'succeeded JSON'
--       kept_attempts: string  for its attempts, if some failed
--       queues: list, then its bell (list) and delayed (zset), for each job that follows
-- PLUGS on_release on_end
-- ARGV  inboxes    what the channel of each session's inbox begins with
-- ARGV  worker     string
-- ARGV  id         string
-- ARGV  position   integer, as it was claimed
-- ARGV  outcome    'succeeded JSON', or '' to keep none
-- ARGV  ttl_ms     integer >= 0, for which its result is kept
-- ARGV  name       unique name, or ''
-- ARGV  histories  '1 ENQUEUED_MS MOST:TASK[+],' if it is to be in the history of its task, or ''
-- ARGV  jobs..     id, envelope, delay_ms, queue name: for each that follows, 1 to 100
-- MOVES    claimed: done; delayed: admitted; new: enqueued put_off
-- RETURNS  {1 or 0}: whether the worker held it at this position; 2 if others are to be told
-- TWICE    {0}: it is done already, and nothing is added
-- COST     O(N log D), N jobs that follow, D delayed jobs of their queues
-- @include server_time
-- @include end_done
-- @include make_ready
-- @include store_job
local PARTS, FIELDS = 3, 4  -- keys of each queue, and arguments of each job

local now_ms = math.floor(server_time() / 1000)
-- All destination keys are read before anything is changed: a foreign key stops the script here.
for i = QUEUES, #KEYS, PARTS do
  redis.call('LLEN', KEYS[i])
  redis.call('LLEN', KEYS[i + 1])
  redis.call('ZCARD', KEYS[i + 2])
end
local answer = end_done(keys, inboxes, worker, {id, position, outcome, ttl_ms, name}, 1, {result},
  {queues = {queue, bell, delayed, facts = facts}, histories = histories, attempts = {kept_attempts}})
if answer[1] == 0 then
  return answer
end
local enqueued, first_key = string.format('%.0f ', now_ms), QUEUES
for i = JOBS, #ARGV, FIELDS do
  local job, envelope, delay_ms, queue_name = unpack(ARGV, i, i + FIELDS - 1)
  redis.call('HSETNX', keys.finished, queue_name, 0)  -- the names of all queues are there
  store_job(keys.bodies, keys.facts, job, enqueued, envelope)
  make_ready(keys.facts, KEYS[first_key], KEYS[first_key + 1], KEYS[first_key + 2], keys.states, job, delay_ms, now_ms, queue_name)
  first_key = first_key + PARTS
end
return answer
