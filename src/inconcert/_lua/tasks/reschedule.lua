-- tasks/reschedule: change when delayed jobs of one queue are due.
--
-- KEYS  bodies states dead facts queue bell delayed recent older held_back places undo
-- ARGV  delay_ms  integer >= 0; from now, or, if they wait for others, from their success
-- ARGV  name      of the queue
-- ARGV  request   string, unique to this call
-- ARGV  ids..     of the jobs, 1 to 250
-- MOVES    delayed: moved due admitted
-- RETURNS  how many are due then, or when they expire if that is before; the others are already in their queue, run or have ended
-- TWICE    the same, and nothing is changed, even if they were rescheduled in between
-- COST     O(N log D), N ids, D delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include make_ready
-- @include cut_delay
-- @include leave_lines
-- @include replace_next
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local state = redis.call('HMGET', states, unpack(ARGV, IDS))
for i = 1, #state do
  if state[i] == 'delayed ' .. name then
    -- All are read before one is changed: a foreign key stops the script here.
    -- @guard queue:list bell:list held_back:zset places:hash undo:hash
    break
  end
end
local limits = {}
for i = 1, #state do
  if state[i] == 'delayed ' .. name then
    limits[ARGV[IDS + i - 1]] = leave_lines(held_back, delayed, bodies, ARGV[IDS + i - 1])
  end
end
for id in pairs(limits) do  -- first: needs no memory, so a full server accepts the rest
  redis.call('ZREM', delayed, id)
end
local now_ms = math.floor(server_time() / 1000)
answer = 0
for i = 1, #state do
  local id, is_due_then = ARGV[IDS + i - 1], true
  if state[i] == 'delayed ' .. name then
    local is_undoing = (redis.call('HGET', undo, id) or '-') ~= '-'  -- that has no end
    local its_delay_ms = is_undoing and delay_ms or cut_delay(bodies, id, delay_ms, now_ms)
    make_ready(facts, queue, bell, delayed, states, id, its_delay_ms, now_ms, name)
  elseif state[i] and string.sub(state[i], 1, 8) == 'waiting ' then
    redis.call('HSET', states, id, 'waiting ' .. delay_ms .. string.match(state[i], '^waiting %d+(%S*) ') .. ' ' .. name)
  else
    local is_queued = not state[i] and redis.call('HEXISTS', bodies, id) == 1 and not redis.call('ZSCORE', dead, id)
    is_due_then = is_queued and delay_ms == '0'
  end
  answer = answer + (is_due_then and 1 or 0)
end
replace_next(places, held_back, states, {queue, bell, delayed, facts = facts}, limits)
remember(recent, older, request, answer)
return answer
