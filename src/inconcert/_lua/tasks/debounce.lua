-- tasks/debounce: add a job that runs after a silence, or replace the one of its unique name that waits for that.
--
-- KEYS[1]  bodies     hash    id -> 'enqueued_ms envelope'; permanent until the job has ended
-- KEYS[2]  queue      list    ids, the next one first; permanent until claimed
-- KEYS[3]  bell       list    at most one token
-- KEYS[4]  delayed    zset    id -> due time, server ms; permanent until due
-- KEYS[5]  states     hash    id -> where it is, unless in its queue; permanent until the job has ended
-- KEYS[6]  unique     hash    unique name -> id of the job that has it, and end of its window, server ms, or 0
-- KEYS[7]  checks     zset    unique name -> when to check whether it is still taken, server ms
-- KEYS[8]  dead       zset    id -> when it was dead-lettered, server ms
-- KEYS[9]  failures   hash    id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[10] crashes    hash    id -> workers that died with it
-- KEYS[11] stepped    hash    id -> the number of its latest step
-- KEYS[12] places     hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[13] held_back  zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[14] recent     hash    request -> its answer, 120 s
-- KEYS[15] older      hash    earlier entries of the same; at most 120 s
-- KEYS[16] finished   hash    queue name -> jobs that have succeeded or were cancelled; one entry for each queue, permanent
-- KEYS[17] result     string  of the job
-- ARGV[1]  request    string, unique to this call
-- ARGV[2]  id         of the new job; or of the one that waits, for which the envelope is then
-- ARGV[3]  is_new     1 | 0
-- ARGV[4]  envelope   as it is stored, with the mark '~' before it
-- ARGV[5]  is_signed  1: the envelope is for this id only | 0: for any
-- ARGV[6]  silence_ms integer > 0, until it is due
-- ARGV[7]  longest_ms integer >= silence_ms, from the first call until it is due at the latest; or ''
-- ARGV[8]  unique_name  string
-- ARGV[9]  name       of the queue
-- RETURNS  {1, id, ''} it was added | {2, id, ''} the job of this id waited, and has this envelope now | {3, id, ''} this live
--          job has the name, and is of another task or was not enqueued so: nothing is changed | {4, id, queue_name} the job of this id waits: call
--          again with an envelope for it, and its queue | {5, '', ''} it waits no more: call again with a new job
-- TWICE    the same, and changes nothing; after the first minute, as long as a job that was added, or its result, is there
-- COST     O(log D), D delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include delay_job
-- @include make_ready
-- @include leave_lines
-- @include replace_next
local ADDED, REPLACED, OTHER, COME_AGAIN, BEGIN_AGAIN = 1, 2, 3, 4, 5
local HELD_BACK_MS = 4e15  -- as in hold_back.lua

local bodies, queue, bell, delayed, states = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, checks, dead, failures, crashes, stepped = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local places, held_back, recent, older, finished, result = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local request, id, is_new, envelope, is_signed = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5] == '1'
local silence_ms, longest_ms, unique_name, name = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]

local answered = recall(recent, older, request)
if answered then
  local what, other, place = string.match(answered, '^(%d) (%S*) (.*)$')
  return {tonumber(what), other, place}
end
local function answer(what, other, place)
  remember(recent, older, request, what .. ' ' .. other .. ' ' .. place)
  return {what, other, place}
end

local function task_of(text)
  return string.match(text, '{"name":(".-"),"')
end

local function lines_of(limits)  -- without when it expires
  return (string.gsub(limits, '/e%d+$', ''))
end

local now_ms = math.floor(server_time() / 1000)
if is_new and (redis.call('HEXISTS', bodies, id) == 1 or redis.call('EXISTS', result) == 1) then
  return {ADDED, id, ''}
end
local live = live_job_of_name(unique, bodies, dead, unique_name, now_ms)
local state, place, is_due, waits, put_ms, first
if live then
  local body, limits = redis.call('HGET', bodies, live) or '', nil
  put_ms, limits, first = string.match(body, '^(%d+) %d+(%S*) #[%x:]*~(%d*) ')
  if not first or task_of(body) ~= task_of(envelope) then
    return answer(OTHER, live, '')
  end
  state = redis.call('HGET', states, live)
  place = state and string.match(state, '^delayed (.*)$')
  local rate = string.match(limits, '^/r[^:]+:(%x+)')
  local next_ms, next_id = string.match(rate and redis.call('HGET', places, rate) or '', '^%d+ (%d+) .* (%S*)$')
  local due_ms = place and tonumber(redis.call('ZSCORE', delayed, live) or 0)
  is_due = not state or place and (due_ms >= HELD_BACK_MS or next_id == live and due_ms == tonumber(next_ms))
  waits = (place or not state) and not (is_due and lines_of(limits) ~= lines_of(string.match(envelope, '^%d+(%S*)')))
  for _, key in ipairs({failures, crashes, stepped}) do
    waits = waits and redis.call('HEXISTS', key, live) == 0  -- otherwise it has begun, and its name is about to be free
  end
end
if waits and id ~= live and (is_signed or (place and place ~= name)) then
  return answer(COME_AGAIN, live, place or name)
end
if not is_new and not (waits and id == live) then
  return answer(BEGIN_AGAIN, '', '')
end

-- All are read before anything is changed: a foreign key stops the script here.
redis.call('LLEN', bell)
redis.call('ZCARD', held_back)
redis.call('HLEN', places)
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
end
local function write(job, first_ms)
  local marked = string.gsub(envelope, '~ ', string.format('~%.0f ', first_ms), 1)
  redis.call('HSET', bodies, job, string.format('%.0f ', now_ms) .. marked)
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
make_ready(queue, bell, delayed, states, live, string.format('%.0f', math.max(0, due_ms - now_ms)), now_ms, name)
replace_next(places, held_back, states, {queue, bell, delayed}, limits)
return answer(REPLACED, live, '')
