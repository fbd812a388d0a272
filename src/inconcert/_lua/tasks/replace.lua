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
-- @include recall
-- @include remember
-- @include head_of
-- @include in_line
-- @include task_and_lines
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include read_facts
-- @include write_facts
-- @include count_waiting
-- @include put_waiting
-- @include follow_parent
-- @include make_ready
-- @include leave_lines
-- @include replace_next
-- @include cancel_jobs
local ADDED, REPLACED, COME_AGAIN = 1, 2, 3
local its_queue, its_bell, its_delayed, its_result, its_attempts = unpack(KEYS, ITS)

local answered = recall(recent, older, request)
if answered then
  local what, other, place = string.match(answered, '^(%d) (%S*) (.*)$')
  return {tonumber(what), other, place}
end
local function answer(what, other, place)
  remember(recent, older, request, what .. ' ' .. other .. ' ' .. place)
  return {what, other, place}
end
if redis.call('HEXISTS', bodies, id) == 1 or redis.call('EXISTS', result) == 1 then
  return {ADDED, '', ''}
end

-- Where is the other one, and may this one have its place?
local now_ms = math.floor(server_time() / 1000)
local live = live_job_of_name(unique, bodies, dead, unique_name, now_ms)
local has_ended = live and redis.call('ZSCORE', dead, live)  -- or it is gone, and its window goes on
local body = live and not has_ended and redis.call('HGET', bodies, live)
local is_running, is_behind, place, is_due, keeps_place
if body then
  local state, about = string.match(redis.call('HGET', states, live) or '', '^(%S+) (.*)$')
  is_running = (state == 'running' or state == 'cancelling') and about ~= ''
  is_behind = state == 'waiting' and string.match(about, '^%d+:replaces ') ~= nil
  place = state == 'delayed' and about or nil
  local _, _, limits = head_of(body)
  is_due = not state or place and in_line(places, its_delayed, live, limits or '')
  local known_of = read_facts(redis.call('HGET', facts, live))
  local has_begun = known_of.failures + known_of.crashes + redis.call('HEXISTS', stepped, live) > 0
    or string.find(known_of.flags, '[psmuva]')
  local task, lines = task_and_lines(envelope)
  local its_task, its_lines = task_and_lines(string.match(body, '^%d+ (.*)$') or '')
  local rank = string.match(envelope, '^%d+%S* #[%x:]*!(%d)') or ''
  local its_rank = string.match(known_of.flags, '%d') or ''
  local has_its_line = not is_due or delay_ms == '0' and its_lines == lines and its_rank == rank
  keeps_place = its_task == task and not has_begun and (is_behind or (place or not state) and has_its_line)
end
local must_be_known = keeps_place and is_signed or not keeps_place and not is_running
if body and (must_be_known and known ~= live or place and its_name ~= place) then
  return answer(COME_AGAIN, live, place or its_name)
end

-- All are read before anything is changed: a foreign key stops the script here.
-- @guard queue:list bell:list delayed:zset its_queue:list its_bell:list its_delayed:zset places:hash on_back on_end
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
end
local function write(job, text)
  redis.call('HSET', bodies, job, string.format('%.0f ', now_ms) .. text)
  local known_of = read_facts(redis.call('HGET', facts, job))
  known_of.flags = string.gsub(known_of.flags, '%d', '') .. (string.match(text, '^%d+%S* #[%x:]*!(%d)') or '')
  write_facts(facts, job, known_of)
end

if keeps_place then
  local limits = place and not is_due and {[live] = leave_lines(held_back, its_delayed, bodies, live)}
  write(live, is_signed and its_envelope or envelope)
  if is_behind then
    count_waiting(waiting, string.match(redis.call('HGET', states, live), '^waiting %S+ (.*)$'), -1)
    count_waiting(waiting, name, 1)
    redis.call('HSET', states, live, 'waiting ' .. delay_ms .. ':replaces ' .. name)  -- the other one may have ended already
  elseif limits then
    redis.call('ZREM', its_delayed, live)
    make_ready(facts, queue, bell, delayed, states, live, delay_ms, now_ms, name)
    replace_next(places, held_back, states, {its_queue, its_bell, its_delayed, facts = facts}, limits)
  end
  if not is_behind then
    take_name(unique, checks, live, unique_name, '0', now_ms)  -- it may have had a window
  end
  return answer(REPLACED, live, '')
end

write(id, envelope)
local before  -- after which it runs
if body then
  local queues = {its_queue, its_bell, its_delayed, facts = facts}
  local ends_later = cancel_jobs(keys, queues, {live}, {its_result}, {its_attempts}, inboxes, ttl_ms)[1] == 0
  before = ends_later and live or is_behind and live_job_of_name(unique, bodies, dead, unique_name, now_ms) or nil
end
take_name(unique, checks, id, unique_name, '0', now_ms, before)
drop_names(unique, checks, bodies, dead, now_ms, 10)
if before then
  redis.call('HSET', parents, id, before)
  follow_parent(keys, before, id)
  put_waiting(keys, id, before, 'replaces', delay_ms, name)
else
  make_ready(facts, queue, bell, delayed, states, id, delay_ms, now_ms, name)
end
return answer(ADDED, '', '')
