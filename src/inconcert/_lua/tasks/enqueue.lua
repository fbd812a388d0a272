-- tasks/enqueue: add jobs to one queue, to run now or later.
--
-- KEYS[1]     bodies   hash    id -> 'enqueued_ms envelope'; permanent until the job has ended
-- KEYS[2]     queue    list    ids, the next one first; permanent until claimed
-- KEYS[3]     bell     list    at most one token
-- KEYS[4]     delayed  zset    id -> due time, server ms; permanent until due
-- KEYS[5]     states   hash    id -> where it is, unless in its queue; permanent until the job has ended
-- KEYS[6]     unique   hash    unique name -> id of the job that has it, and end of its window, server ms, or 0
-- KEYS[7]     checks   zset    unique name -> when to check whether it is still taken, server ms
-- KEYS[8]     dead     zset    id -> when it was dead-lettered, server ms
-- KEYS[9]     recent   hash    id of the first job -> its answer, 120 s
-- KEYS[10]    older    hash    earlier entries of the same; at most 120 s
-- KEYS[11]    finished hash    queue name -> jobs that have succeeded or were cancelled; one entry for each queue, permanent
-- KEYS[12]    places   hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[13]    held_back zset   'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[14..]  results  string  of each job, in the same order
-- ARGV[1]     name     of the queue
-- ARGV[2..]   jobs     id, envelope, delay_ms, unique name or '', window_ms: for each job, at most 500; window_ms is 0 if the name
--           is taken until the job has ended
-- RETURNS   {'', other id, ...}: for each job '' if it was added, otherwise the live job that has its unique name
-- TWICE     the same, and adds nothing; after the first minute, as long as the job or its result is there
-- COST      O(N log D), N jobs given, D delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include delay_job
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include hold_back
-- @include take_turn
local FIRST_RESULT, FIRST_JOB, FIELDS = 14, 2, 5  -- KEYS of the results; ARGV of the jobs, and how many each has
local BRACE, byte = 123, string.byte  -- an envelope that begins there as JSON has no limits

local bodies, queue, bell, delayed, states = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local unique, checks, dead, recent, older, finished = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local places, held_back = KEYS[12], KEYS[13]
local answer, request = {}, ARGV[2]
local others = recall(recent, older, request)
if others then
  for other in string.gmatch(others, '(%S*) ') do
    answer[#answer + 1] = other
  end
  return answer
end
local now_ms = math.floor(server_time() / 1000)
local enqueued = string.format('%.0f ', now_ms)
-- All destination keys are read before anything is changed: a foreign key stops the script here.
local key_of = {}  -- of those that share
for i = FIRST_JOB, #ARGV, FIELDS do
  if byte(ARGV[i + 1]) ~= BRACE then
    key_of[i] = string.match(ARGV[i + 1], '^%d+%S*/s:(%x+)')
  end
end
if next(key_of) then
  redis.call('HLEN', places)
  redis.call('ZCARD', held_back)
end
redis.call('LLEN', bell)
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, ARGV[1], 0)  -- the names of all queues are there
end

local ready, held, names, answered, added = {}, {}, 0, 0, 0
local some_have_ended = redis.call('EXISTS', unpack(KEYS, FIRST_RESULT)) > 0
for i = FIRST_JOB, #ARGV, FIELDS do
  local id, envelope, delay_ms, name, window_ms = unpack(ARGV, i, i + FIELDS - 1)
  -- First, because its name may belong to another job by now.
  local was_added = (name ~= '' and redis.call('HEXISTS', bodies, id) == 1)
    or (some_have_ended and redis.call('EXISTS', KEYS[FIRST_RESULT + (i - FIRST_JOB) / FIELDS]) == 1)
  local other = not was_added and name ~= '' and live_job_of_name(unique, bodies, dead, name, now_ms) or nil
  answered = answered + 1
  answer[answered] = other or ''
  if not other and not was_added and redis.call('HSETNX', bodies, id, enqueued .. envelope) == 1 then
    if name ~= '' then
      take_name(unique, checks, id, name, window_ms, now_ms)
      names = names + 1
    end
    local key = key_of[i]
    if delay_ms ~= '0' then
      delay_job(delayed, bell, states, id, now_ms + delay_ms, ARGV[1])
    elseif key and not take_turn(places, held_back, key, id) then
      held[#held + 1] = {id = id, limit = key, order = now_ms, is_ready = not string.find(envelope, '^%d+%S*/%d+:' .. key)}
    else
      added = added + 1
      ready[added] = id
    end
  end
end
if added > 0 then
  redis.call('RPUSH', queue, unpack(ready))
  ring(bell)
end
if #held > 0 then
  hold_back(held_back, delayed, states, ARGV[1], held)
end

remember(recent, older, request, table.concat(answer, ' ') .. ' ')
drop_names(unique, checks, bodies, dead, now_ms, names + 10)  -- more than were added, so that they do not accumulate
return answer
