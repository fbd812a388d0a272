-- tasks/promote: move jobs that are due to their queue, the earliest first, at most 100.
--
-- KEYS[1]  delayed  zset  id -> due time, server ms
-- KEYS[2]  queue    list  ids, the next one first
-- KEYS[3]  bell     list  at most one token
-- KEYS[4]  states   hash  id -> where it is, if not in its queue
-- RETURNS  {moved, next_ms}: milliseconds until the next is due, 0 for at once, -1 if there is none
-- TWICE    moves what is due by then, once each
-- COST     O(log N + M), N delayed jobs, M moved
-- @include server_time
-- @include ring
local delayed, queue, bell, states = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now_ms = math.floor(server_time() / 1000)
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now_ms, 'LIMIT', 0, 100)
if #due > 0 then
  redis.call('ZREM', delayed, unpack(due))
  redis.call('HDEL', states, unpack(due))
  redis.call('RPUSH', queue, unpack(due))
  ring(bell)
end
local next_due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
return {#due, next_due and math.max(0, next_due - now_ms) or -1}
