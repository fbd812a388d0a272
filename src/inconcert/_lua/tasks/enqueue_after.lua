-- tasks/enqueue_after: add a job that runs after others have succeeded.
--
-- KEYS[1]     bodies      hash    id -> 'enqueued_ms envelope'; permanent until the job has ended
-- KEYS[2]     queue       list    ids, the next one first; permanent until claimed
-- KEYS[3]     bell        list    at most one token
-- KEYS[4]     delayed     zset    id -> due time, server ms; permanent until due
-- KEYS[5]     states      hash    id -> where it is, unless in its queue; permanent until the job has ended
-- KEYS[6]     unique      hash    unique name -> id of the job that has it, and end of its window, server ms, or 0
-- KEYS[7]     checks      zset    unique name -> when to check whether it is still taken, server ms
-- KEYS[8]     dead        zset    id -> when it was dead-lettered, server ms
-- KEYS[9]     reasons     hash    id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[10]    parents     hash    id -> ids of the jobs it runs after; permanent until the job has ended
-- KEYS[11]    children    zset    'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[12]    followers   zset    'id child', all of score 0: a child to resolve when the job of this id has ended
-- KEYS[13]    outcomes    hash    id -> outcome of a job that has children: 'succeeded JSON' | 'failed REASON' | 'cancelled '
-- KEYS[14]    waiting     hash    queue name -> its jobs that wait for others
-- KEYS[15]    pending     hash    id -> ids of the parents that it still waits for
-- KEYS[16]    unfollowed  hash    id -> ids of its parents in other partitions that do not know of it yet
-- KEYS[17]    news        list    ids of jobs that have ended or may run now, not processed yet
-- KEYS[18]    recent      hash    id of the new job -> its answer, 120 s
-- KEYS[19]    older       hash    earlier entries of the same; at most 120 s
-- KEYS[20]    finished    hash    queue name -> jobs that have succeeded or were cancelled; one entry for each queue, permanent
-- KEYS[21]    history     zset    how the last jobs of a task ended; see tasks/history.lua
-- KEYS[22]    result      string  of the new job
-- KEYS[23..]  results     string  of each parent in this partition, in the same order
-- ARGV[1]     queue_name  string
-- ARGV[2]     id          string
-- ARGV[3]     envelope    JSON
-- ARGV[4]     delay_ms    integer >= 0, from when all parents have succeeded
-- ARGV[5]     name        unique name, or ''
-- ARGV[6]     window_ms   integer > 0, for which the name is taken | 0: until the job has ended
-- ARGV[7]     suffix      of the ids of this partition; '' if there are no others
-- ARGV[8]     even_if     '' if all must have succeeded | 'failed' | 'ended'; see lets_run()
-- ARGV[9..]   after       ids, each once, 1 to 100
-- RETURNS   {''} it was added, or dead-lettered because a parent did not end as it must have | {the live job that has its unique name}
-- TWICE     the same, and adds nothing; after the first minute, as long as the job or its result is there
-- COST      O(P log F), P parents, F pairs of followers
-- @include server_time
-- @include recall
-- @include remember
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include wait_for_parents
local FIRST_RESULT, FIRST_PARENT = 23, 9  -- KEYS of the results; ARGV of the parents

local bodies, queue, bell, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local unique, checks, dead, parents = KEYS[6], KEYS[7], KEYS[8], KEYS[10]
local keys = {
  bodies = bodies, queue = queue, bell = bell, delayed = delayed, states = KEYS[5], dead = dead, reasons = KEYS[9],
  children = KEYS[11], followers = KEYS[12], outcomes = KEYS[13], waiting = KEYS[14], pending = KEYS[15],
  unfollowed = KEYS[16], news = KEYS[17], history = KEYS[21],
}
local recent, older, finished, result = KEYS[18], KEYS[19], KEYS[20], KEYS[22]
local queue_name, id, envelope, delay_ms, name, window_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local suffix, even_if = ARGV[7], ARGV[8]
local now_ms = math.floor(server_time() / 1000)
local answer = recall(recent, older, id)
if answer then
  return {answer}
end
if redis.call('HEXISTS', bodies, id) == 1 or redis.call('EXISTS', result) == 1 then
  return {''}
end
local other = name ~= '' and live_job_of_name(unique, bodies, dead, name, now_ms)
if other then
  remember(recent, older, id, other)
  return {other}
end

-- All destination keys are read before anything is changed: a foreign key stops the script here.
redis.call('LLEN', queue)
redis.call('LLEN', bell)
redis.call('ZCARD', delayed)
redis.call('ZCARD', keys.history)
redis.call('HSETNX', finished, queue_name, 0)  -- the names of all queues are there
redis.call('HSET', bodies, id, string.format('%.0f ', now_ms) .. envelope)
remember(recent, older, id, '')
if name ~= '' then
  take_name(unique, checks, id, name, window_ms, now_ms)
end
drop_names(unique, checks, bodies, dead, now_ms, 10)
redis.call('HSET', parents, id, table.concat(ARGV, ' ', FIRST_PARENT))
local after, results = {unpack(ARGV, FIRST_PARENT)}, {unpack(KEYS, FIRST_RESULT)}
wait_for_parents(keys, id, after, results, suffix, even_if, delay_ms, queue_name, now_ms)
return {''}
