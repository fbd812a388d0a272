-- tasks/reschedule: change when a delayed job is due.
--
-- KEYS[1]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]  states    hash    id -> where it is, unless in its queue
-- KEYS[3]  dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[4]  queue     list    ids, the next one first
-- KEYS[5]  bell      list    at most one token
-- KEYS[6]  delayed   zset    id -> due time, server ms
-- KEYS[7]  recent    hash    request -> its answer, 120 s
-- KEYS[8]  older     hash    earlier entries of the same; at most 120 s
-- ARGV[1]  id        string
-- ARGV[2]  delay_ms  integer >= 0; from now, or, if it waits for others, from their success
-- ARGV[3]  name      of its queue
-- ARGV[4]  request   string, unique to this call
-- RETURNS  1 it is due then | 0 too late: it is already in its queue, runs or has ended
-- TWICE    the same, and nothing is changed, even if it was rescheduled in between
-- COST     O(log N), N delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include make_ready
local bodies, states, dead, queue, bell, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local recent, older = KEYS[7], KEYS[8]
local id, delay_ms, name, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local state = redis.call('HGET', states, id)
local is_waiting = string.sub(state or '', 1, 8) == 'waiting '
if state == 'delayed ' .. name then
  -- All are read before one is changed: a foreign key stops the script here.
  redis.call('LLEN', queue)
  redis.call('LLEN', bell)
end
redis.call('ZREM', delayed, id)  -- first: needs no memory, so a full server accepts the rest
answer = 1
if state == 'delayed ' .. name then
  make_ready(queue, bell, delayed, states, id, delay_ms, math.floor(server_time() / 1000), name)
elseif is_waiting then
  redis.call('HSET', states, id, 'waiting ' .. delay_ms .. ' ' .. name)
else
  local is_queued = not state and redis.call('HEXISTS', bodies, id) == 1 and not redis.call('ZSCORE', dead, id)
  answer = is_queued and delay_ms == '0' and 1 or 0
end
remember(recent, older, request, answer)
return answer
