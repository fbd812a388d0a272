-- tasks/enqueue_after: add a job that runs after others have succeeded.
--
-- KEYS  bodies queue bell delayed states unique checks dead reasons parents children followers outcomes waiting pending
-- KEYS  unfollowed news recent older finished history facts result results..
--       result: string  of the new job
--       results: string  of each parent in this partition, in the same order
-- PLUGS on_dead
-- ARGV  queue_name  string
-- ARGV  id          string
-- ARGV  envelope    JSON
-- ARGV  delay_ms    integer >= 0, from when all parents have succeeded
-- ARGV  name        unique name, or ''
-- ARGV  window_ms   integer > 0, for which the name is taken | 0: until the job has ended
-- ARGV  suffix      of the ids of this partition; '' if there are no others
-- ARGV  even_if     '' if all must have succeeded | 'failed' | 'ended'; see lets_run()
-- ARGV  after..     ids, each once, 1 to 100
-- MOVES    new: enqueued put_off put_after orphaned
-- RETURNS  {''} it was added, or dead-lettered because a parent did not end as it must have | {the live job that has its unique name}
-- TWICE    the same, and adds nothing; after the first minute, as long as the job or its result is there
-- COST     O(P log F), P parents, F pairs of followers
-- @include server_time
-- @include recall
-- @include remember
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include store_job
-- @include wait_for_parents
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
-- @guard queue:list bell:list delayed:zset keys.history:zset
redis.call('HSETNX', finished, queue_name, 0)  -- the names of all queues are there
store_job(bodies, facts, id, string.format('%.0f ', now_ms), envelope)
remember(recent, older, id, '')
if name ~= '' then
  take_name(unique, checks, id, name, window_ms, now_ms)
end
drop_names(unique, checks, bodies, dead, now_ms, 10)
redis.call('HSET', parents, id, table.concat(ARGV, ' ', AFTER))
local after, results = {unpack(ARGV, AFTER)}, {unpack(KEYS, RESULTS)}
wait_for_parents(keys, id, after, results, suffix, even_if, delay_ms, queue_name, now_ms)
return {''}
