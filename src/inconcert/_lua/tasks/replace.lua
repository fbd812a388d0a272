-- tasks/replace: add a job, and let it replace the one that has its unique name: it takes the place of one that waits; one that
-- runs, or has begun, is cancelled, and the new one runs when it has ended.
--
-- KEYS  bodies queue bell delayed states unique checks dead facts stepped places held_back recent older finished watchers
-- KEYS  waiting pending unfollowed parents children followers result its..
--       result: string  of the new one
--       its: list of the queue in which the other one is, as far as that is known, its bell (list) and delayed (zset); the
--         result of the other one, a string: 'cancelled '; and one for its attempts
-- PLUGS on_back on_end
-- ARGV  request       string, unique to this call
-- ARGV  id            of the new job
-- ARGV  known         id of the other one, if the caller knows it; or ''
-- ARGV  envelope      as it is stored
-- ARGV  its_envelope  likewise, signed for the other one; '' if it is not known, or none is signed
-- ARGV  is_signed     flag
-- ARGV  delay_ms      integer >= 0
-- ARGV  unique_name   string
-- ARGV  name          of the queue
-- ARGV  its_name      of the queue of the other one
-- ARGV  inboxes       prefix of each session's inbox channel
-- ARGV  ttl_ms        integer > 0, how long the fact that the other one was cancelled is kept
-- MOVES    new: enqueued put_off put_after; queue: cancelled; delayed: moved due admitted cancelled undo; waiting: cancelled undo
-- RETURNS  {1, '', ''} it was added | {2, id, ''} the job of this id waited, and has this envelope now | {3, id, queue_name} this
--          one has the name: call again, and say so, with an envelope for it, and its queue; nothing is changed
-- TWICE    the same, and changes nothing; after the first minute, as long as a job that was added, or its result, is there
-- COST     O(log D + S), D delayed jobs of both queues; S steps and messages of one that is cancelled
-- @include server_time
-- @include recall_answer
-- @include remember_answer
-- @include job_of_name
-- @include live_job_of_name
-- @include task_and_lines
-- @include keep_turn
-- @include rewrite_job
-- @include count_waiting
-- @include take_name
-- @include drop_names
-- @include cancel_jobs
-- @include run_after
-- @include make_ready
local ADDED, REPLACED, COME_AGAIN = 1, 2, 3
local its_queue, its_bell, its_delayed, its_result, its_attempts = unpack(KEYS, ITS)

local answer = recall_answer(recent, older, request)
if answer then
  return answer
end
if redis.call('HEXISTS', bodies, id) == 1 or redis.call('EXISTS', result) == 1 then
  return {ADDED, '', ''}
end

-- Which is the other one, and may the new one have its turn?
local now_ms = math.floor(server_time() / 1000)
local other, its = job_of_name(keys, its_delayed, unique_name, now_ms)
local keeps_turn = false
if its then
  local task, lines = task_and_lines(envelope)
  local rank, its_rank = string.match(envelope, '^%d+%S* #[%x:]*!(%d)') or '', string.match(its.flags, '%d') or ''
  local has_begun = its.has_begun or string.find(its.flags, '[psmuva]')
  local has_its_line = not its.is_due or delay_ms == '0' and its.lines == lines and its_rank == rank
  local may_wait = its.is_behind or (its.delayed_in or its.is_queued) and has_its_line
  keeps_turn = its.task == task and not has_begun and may_wait
  local must_be_known = keeps_turn and is_signed or not keeps_turn and not its.is_running
  if must_be_known and known ~= other or its.delayed_in and its_name ~= its.delayed_in then
    return remember_answer(recent, older, request, COME_AGAIN, other, its.delayed_in or its_name)
  end
end

-- All are read before anything is changed: a foreign key stops the script here.
-- @guard queue:list bell:list delayed:zset its_queue:list its_bell:list its_delayed:zset places:hash on_back on_end
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
end
local put = string.format('%.0f ', now_ms)
local its_queues = {its_queue, its_bell, its_delayed, facts = facts}

if keeps_turn and its.is_behind then
  rewrite_job(bodies, facts, other, put, is_signed and its_envelope or envelope)
  count_waiting(waiting, string.match(redis.call('HGET', states, other), '^waiting %S+ (.*)$'), -1)
  count_waiting(waiting, name, 1)
  redis.call('HSET', states, other, 'waiting ' .. delay_ms .. ':replaces ' .. name)  -- the one before it may have ended already
  return remember_answer(recent, older, request, REPLACED, other, '')
elseif keeps_turn then
  local text = is_signed and its_envelope or envelope
  keep_turn(keys, other, its, its_queues, text, {queue, bell, delayed}, delay_ms, now_ms, name)
  take_name(unique, checks, other, unique_name, '0', now_ms)  -- it may have had a window
  return remember_answer(recent, older, request, REPLACED, other, '')
end

rewrite_job(bodies, facts, id, put, envelope)
local before  -- after which it runs
if its then
  local ends_later = cancel_jobs(keys, its_queues, {other}, {its_result}, {its_attempts}, inboxes, ttl_ms)[1] == 0
  before = ends_later and other or its.is_behind and live_job_of_name(unique, bodies, dead, unique_name, now_ms) or nil
end
take_name(unique, checks, id, unique_name, '0', now_ms, before)
drop_names(unique, checks, bodies, dead, now_ms, 10)
if before then
  run_after(keys, before, id, 'replaces', delay_ms, name)
else
  make_ready(facts, queue, bell, delayed, states, id, delay_ms, now_ms, name)
end
return remember_answer(recent, older, request, ADDED, '', '')
