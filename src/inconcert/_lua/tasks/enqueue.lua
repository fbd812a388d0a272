-- tasks/enqueue: add jobs to one queue, to run now or later.
--
-- KEYS  bodies facts queue bell delayed states unique checks dead recent older finished places held_back results..
--       results: string  of each job, in the same order
-- ARGV  queue_name  of the queue
-- ARGV  jobs..      id, envelope, delay_ms, unique name or '', window_ms: for each job, at most 500; window_ms is 0 if the name
--               is taken until the job has ended
-- MOVES    new: enqueued put_off
-- RETURNS  {'', other id, ...}: for each job '' if it was added, otherwise the live job that has its unique name
-- TWICE    the same, and adds nothing; after the first minute, as long as the job or its result is there
-- COST     O(N log D), N jobs given, D delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include delay_job
-- @include live_job_of_name
-- @include take_name
-- @include take_turn
local FIELDS = 5  -- arguments of each job
local BRACE, byte = 123, string.byte  -- an envelope that begins there as JSON has no limits

local answer, request = {}, ARGV[JOBS]
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
local key_of, priority_of = {}, {}  -- of those that share, or have one
for i = JOBS, #ARGV, FIELDS do
  if byte(ARGV[i + 1]) ~= BRACE then
    key_of[i] = string.match(ARGV[i + 1], '^%d+%S*/s:(%x+)')
    priority_of[i] = string.match(ARGV[i + 1], '^%d+%S* #[%x:]*!(%d)')
  end
end
if next(key_of) then
  -- @guard places:hash held_back:zset
end
-- @guard bell:list
if redis.call('LLEN', queue) + redis.call('ZCARD', delayed) == 0 then
  redis.call('HSETNX', finished, queue_name, 0)  -- the names of all queues are there
end

local ready, ranked, held, names, answered, added = {}, {}, {}, 0, 0, 0
local some_have_ended = redis.call('EXISTS', unpack(KEYS, RESULTS)) > 0
for i = JOBS, #ARGV, FIELDS do
  local id, envelope, delay_ms, name, window_ms = unpack(ARGV, i, i + FIELDS - 1)
  -- First, because its name may belong to another job by now.
  local was_added = (name ~= '' and redis.call('HEXISTS', bodies, id) == 1)
    or (some_have_ended and redis.call('EXISTS', KEYS[RESULTS + (i - JOBS) / FIELDS]) == 1)
  local other = not was_added and name ~= '' and live_job_of_name(unique, bodies, dead, name, now_ms) or nil
  answered = answered + 1
  answer[answered] = other or ''
  if not other and not was_added and redis.call('HSETNX', bodies, id, enqueued .. envelope) == 1 then
    if name ~= '' then
      take_name(unique, checks, id, name, window_ms, now_ms)
      names = names + 1
    end
    local key, priority = key_of[i], priority_of[i]
    if priority then
      redis.call('HSET', facts, id, priority .. ' 0 0 ')
    end
    if delay_ms ~= '0' then
      delay_job(delayed, bell, states, id, now_ms + delay_ms, queue_name)
    elseif key and not take_turn(places, held_back, key, id) then
      held[#held + 1] = {id = id, limit = key, order = now_ms, is_ready = not string.find(envelope, '^%d+%S*/%d+:' .. key),
        expires = string.find(envelope, '^[^og{]*/e%d')}
    elseif priority then
      ranked[#ranked + 1] = {id, priority}
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
if #ranked > 0 then
  -- @block rank
  for _, each in ipairs(ranked) do
    rank(delayed, each[1], each[2], 'RPUSH')
  end
  ring(bell)
end
if #held > 0 then
  -- @block hold_back
  hold_back(held_back, delayed, states, queue_name, held)
end

remember(recent, older, request, table.concat(answer, ' ') .. ' ')
if names > 0 then
  -- @block drop_names
  drop_names(unique, checks, bodies, dead, now_ms, names + 10)  -- more than were added, so that they do not accumulate
end
return answer
