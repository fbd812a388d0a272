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
-- @include recall
-- @include remember
-- @include head_of
-- @include in_line
-- @include task_and_lines
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include delay_job
-- @include make_ready
-- @include leave_lines
-- @include read_facts
-- @include write_facts
-- @include replace_next
local ADDED, REPLACED, OTHER, COME_AGAIN, BEGIN_AGAIN = 1, 2, 3, 4, 5

local answered = recall(recent, older, request)
if answered then
  local what, other, place = string.match(answered, '^(%d) (%S*) (.*)$')
  return {tonumber(what), other, place}
end
local function answer(what, other, place)
  remember(recent, older, request, what .. ' ' .. other .. ' ' .. place)
  return {what, other, place}
end

local now_ms = math.floor(server_time() / 1000)
if is_new and (redis.call('HEXISTS', bodies, id) == 1 or redis.call('EXISTS', result) == 1) then
  return {ADDED, id, ''}
end
local live = live_job_of_name(unique, bodies, dead, unique_name, now_ms)
local state, place, is_due, waits, put_ms, first
if live then
  local body = redis.call('HGET', bodies, live)
  local enqueued_ms, _, limits, _, its_first = head_of(body)
  put_ms, first = enqueued_ms, its_first
  local task, lines = task_and_lines(envelope)
  local its_task, its_lines = task_and_lines(string.match(body, '^%d+ (.*)$') or '')
  if not first or its_task ~= task then
    return answer(OTHER, live, '')
  end
  state = redis.call('HGET', states, live)
  place = state and string.match(state, '^delayed (.*)$')
  is_due = not state or place and in_line(places, delayed, live, limits or '')
  waits = (place or not state) and not (is_due and its_lines ~= lines)
  local known = read_facts(redis.call('HGET', facts, live))
  local has_begun = known.failures + known.crashes + redis.call('HEXISTS', stepped, live) > 0
  waits = waits and not has_begun  -- otherwise its name is about to be free
end
if waits and id ~= live and (is_signed or (place and place ~= name)) then
  return answer(COME_AGAIN, live, place or name)
end
if not is_new and not (waits and id == live) then
  return answer(BEGIN_AGAIN, '', '')
end

-- All are read before anything is changed: a foreign key stops the script here.
-- @guard bell:list held_back:zset places:hash
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
end
local function write(job, first_ms)
  local marked = string.gsub(envelope, '~ ', string.format('~%.0f ', first_ms), 1)
  redis.call('HSET', bodies, job, string.format('%.0f ', now_ms) .. marked)
  local known = read_facts(redis.call('HGET', facts, job))
  known.flags = string.gsub(known.flags, '%d', '') .. (string.match(envelope, '^%d+%S* #[%x:]*!(%d)') or '')
  write_facts(facts, job, known)
end

local due_ms = now_ms + silence_ms
if not waits then
  write(id, now_ms)
  take_name(unique, checks, id, unique_name, '0', now_ms)
  delay_job(delayed, bell, states, id, due_ms, name)
  drop_names(unique, checks, bodies, dead, now_ms, 10)
  return answer(ADDED, id, '')
end
local first_ms = tonumber(first) or tonumber(put_ms)
if is_due then  -- it keeps its place in its queue, or in the line of a limit, or is still the next of its rate
  write(live, first_ms)
  return answer(REPLACED, live, '')
end
due_ms = math.min(due_ms, first_ms + (longest_ms or 1e15))
local limits = {[live] = leave_lines(held_back, delayed, bodies, live)}
redis.call('ZREM', delayed, live)
write(live, first_ms)
make_ready(facts, queue, bell, delayed, states, live, string.format('%.0f', math.max(0, due_ms - now_ms)), now_ms, name)
replace_next(places, held_back, states, {queue, bell, delayed, facts = facts}, limits)
return answer(REPLACED, live, '')
