-- claims/promote: move what is due to its queue, the earliest first, at most 100.
--
-- KEYS[1]  delayed  zset  id -> due time, server ms
-- KEYS[2]  queue    list  ids, the next one first
-- KEYS[3]  bell     list  at most one token
-- KEYS[4]  states   hash  id -> where it is, if not in its queue
-- ARGV[1]  front    1 to the front of the queue, the last that was due before the others | 0 to its back
-- RETURNS  {moved, next_ms}: milliseconds until the next is due, 0 for at once, -1 if there is none
-- TWICE    moves what is due by then, once each
-- COST     O(log N + M), N delayed jobs, M moved
-- @include server_time
-- @include ring
local delayed, queue, bell, states = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now_ms = math.floor(server_time() / 1000)
local due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now_ms, 'LIMIT', 0, 100)
if #due > 0 then
  -- Both are read before anything is changed: a key that is not ours stops the script here.
  redis.call('LLEN', queue)
  redis.call('LLEN', bell)
  redis.call('ZREM', delayed, unpack(due))
  redis.call('HDEL', states, unpack(due))
  redis.call(ARGV[1] == '1' and 'LPUSH' or 'RPUSH', queue, unpack(due))
  ring(bell)
end
local next_due = redis.call('ZRANGEBYSCORE', delayed, '-inf', '(4e15', 'WITHSCORES', 'LIMIT', 0, 1)[2]
return {#due, next_due and math.max(0, next_due - now_ms) or -1}
