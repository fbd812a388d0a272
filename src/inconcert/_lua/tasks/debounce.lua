-- tasks/debounce: add a job that runs after a silence, or replace the one of its unique name that waits for that.
--
-- KEYS  bodies queue bell delayed states unique checks dead facts stepped places held_back recent older
-- KEYS  finished result
--       result: string  of the job
-- ARGV  request      string, unique to this call
-- ARGV  id           of the new job; or of the one that waits, for which the envelope is then
-- ARGV  is_new       flag
-- ARGV  envelope     as it is stored, with the mark '~' before it
-- ARGV  is_signed    flag, 1: the envelope is for this id only | 0: for any
-- ARGV  silence_ms   number > 0, until it is due
-- ARGV  longest_ms   number >= silence_ms, from the first call until it is due at the latest; or ''
-- ARGV  unique_name  string
-- ARGV  name         of the queue
-- MOVES    new: put_off; delayed: moved due admitted
-- RETURNS  {1, id, ''} it was added | {2, id, ''} the job of this id waited, and has this envelope now | {3, id, ''} this live
--          job has the name, and is of another task or was not enqueued so: nothing is changed | {4, id, queue_name} the job of this id waits: call
--          again with an envelope for it, and its queue | {5, '', ''} it waits no more: call again with a new job
-- TWICE    the same, and changes nothing; after the first minute, as long as a job that was added, or its result, is there
-- COST     O(log D), D delayed jobs of the queue
-- @include server_time
-- @include recall_answer
-- @include remember_answer
-- @include job_of_name
-- @include task_and_lines
-- @include rewrite_job
-- @include take_name
-- @include delay_job
-- @include drop_names
-- @include keep_turn
local ADDED, REPLACED, OTHER, COME_AGAIN, BEGIN_AGAIN = 1, 2, 3, 4, 5

local answer = recall_answer(recent, older, request)
if answer then
  return answer
end
if is_new and (redis.call('HEXISTS', bodies, id) == 1 or redis.call('EXISTS', result) == 1) then
  return {ADDED, id, ''}
end

local now_ms = math.floor(server_time() / 1000)
local other, its = job_of_name(keys, delayed, unique_name, now_ms)
local task, lines = task_and_lines(envelope)
if other and not (its and its.first_ms and its.task == task) then
  return remember_answer(recent, older, request, OTHER, other, '')
end
-- One that has begun has its name no more soon, and one that is due in other lines has its turn there.
local waits = its and (its.delayed_in or its.is_queued) and not (its.is_due and its.lines ~= lines) and not its.has_begun
if waits and id ~= other and (is_signed or its.delayed_in and its.delayed_in ~= name) then
  return remember_answer(recent, older, request, COME_AGAIN, other, its.delayed_in or name)
end
if not is_new and not (waits and id == other) then
  return remember_answer(recent, older, request, BEGIN_AGAIN, '', '')
end

-- All are read before anything is changed: a foreign key stops the script here.
-- @guard bell:list held_back:zset places:hash
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
end
local first_ms = waits and (tonumber(its.first_ms) or tonumber(its.put_ms)) or now_ms
local marked = string.gsub(envelope, '~ ', string.format('~%.0f ', first_ms), 1)
local due_ms = now_ms + silence_ms
if not waits then
  rewrite_job(bodies, facts, id, string.format('%.0f ', now_ms), marked)
  take_name(unique, checks, id, unique_name, '0', now_ms)
  delay_job(delayed, bell, states, id, due_ms, name)
  drop_names(unique, checks, bodies, dead, now_ms, 10)
  return remember_answer(recent, older, request, ADDED, id, '')
end
local queues = {queue, bell, delayed, facts = facts}
local delay_ms = math.max(0, math.min(due_ms, first_ms + (longest_ms or 1e15)) - now_ms)
keep_turn(keys, other, its, queues, marked, queues, string.format('%.0f', delay_ms), now_ms, name)
return remember_answer(recent, older, request, REPLACED, other, '')
