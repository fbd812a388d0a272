-- tasks/reschedule: change when delayed jobs of one queue are due.
--
-- KEYS[1]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]  states    hash    id -> where it is, unless in its queue
-- KEYS[3]  dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[4]  queue     list    ids, the next one first
-- KEYS[5]  bell      list    at most one token
-- KEYS[6]  delayed   zset    id -> due time, server ms
-- KEYS[7]  recent    hash    request -> its answer, 120 s
-- KEYS[8]  older     hash    earlier entries of the same; at most 120 s
-- KEYS[9]  held_back zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[10] places    hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- ARGV[1]  delay_ms  integer >= 0; from now, or, if they wait for others, from their success
-- ARGV[2]  name      of the queue
-- ARGV[3]  request   string, unique to this call
-- ARGV[4..] ids      of the jobs, 1 to 250
-- RETURNS  how many are due then; the others are already in their queue, run or have ended
-- TWICE    the same, and nothing is changed, even if they were rescheduled in between
-- COST     O(N log D), N ids, D delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include make_ready
-- @include leave_lines
-- @include replace_next
local FIRST_ID = 4  -- ARGV of the ids

local bodies, states, dead, queue, bell, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local recent, older, held_back, places = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local delay_ms, name, request = ARGV[1], ARGV[2], ARGV[3]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local state = redis.call('HMGET', states, unpack(ARGV, FIRST_ID))
for i = 1, #state do
  if state[i] == 'delayed ' .. name then
    -- All are read before one is changed: a foreign key stops the script here.
    redis.call('LLEN', queue)
    redis.call('LLEN', bell)
    redis.call('ZCARD', held_back)
    redis.call('HLEN', places)
    break
  end
end
local limits = {}
for i = 1, #state do
  if state[i] == 'delayed ' .. name then
    limits[ARGV[FIRST_ID + i - 1]] = leave_lines(held_back, delayed, bodies, ARGV[FIRST_ID + i - 1])
  end
end
redis.call('ZREM', delayed, unpack(ARGV, FIRST_ID))  -- first: needs no memory, so a full server accepts the rest
local now_ms = math.floor(server_time() / 1000)
answer = 0
for i = 1, #state do
  local id, is_due_then = ARGV[FIRST_ID + i - 1], true
  if state[i] == 'delayed ' .. name then
    make_ready(queue, bell, delayed, states, id, delay_ms, now_ms, name)
  elseif state[i] and string.sub(state[i], 1, 8) == 'waiting ' then
    redis.call('HSET', states, id, 'waiting ' .. delay_ms .. string.match(state[i], '^waiting %d+(%S*) ') .. ' ' .. name)
  else
    local is_queued = not state[i] and redis.call('HEXISTS', bodies, id) == 1 and not redis.call('ZSCORE', dead, id)
    is_due_then = is_queued and delay_ms == '0'
  end
  answer = answer + (is_due_then and 1 or 0)
end
replace_next(places, held_back, states, {queue, bell, delayed}, limits)
remember(recent, older, request, answer)
return answer
