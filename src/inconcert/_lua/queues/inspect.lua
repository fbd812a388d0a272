-- queues/inspect: counts of a queue's items, and the next ones.
--
-- KEYS[1]  bodies   hash  id -> 'put_ms item'
-- KEYS[2]  queue    list  ids, the next one first
-- KEYS[3]  delayed  zset  id -> due time, server ms
-- KEYS[4]  dead     zset  id -> when it was dead-lettered, server ms
-- ARGV[1]  skip     integer >= 0: how many of the next items to skip
-- ARGV[2]  limit    integer from 0 to 1,000: how many items to show; fewer are shown if they have 1 MiB
-- RETURNS  {ready, delayed, claimed, dead, oldest_ms, id, body, ...}: oldest_ms since the oldest of those that are ready
--          was put in, as far as the two ends of the queue tell, -1 if none is; then the items that come next
-- TWICE    the same; nothing is changed
-- COST     O(M), M items shown
-- @include server_time
local bodies, queue, delayed, dead, limit = KEYS[1], KEYS[2], KEYS[3], KEYS[4], tonumber(ARGV[2])
local now_ms = math.floor(server_time() / 1000)
local ready, later, buried = redis.call('LLEN', queue), redis.call('ZCARD', delayed), redis.call('ZCARD', dead)
local oldest_ms = -1
for _, at in ipairs({0, -1}) do
  local id = redis.call('LINDEX', queue, at)
  local put_ms = id and string.match(redis.call('HGET', bodies, id) or '', '^%d+')
  oldest_ms = math.max(oldest_ms, put_ms and now_ms - put_ms or -1)
end
local answer = {ready, later, redis.call('HLEN', bodies) - ready - later - buried, buried, oldest_ms}
local bytes = 0
for _, id in ipairs(limit > 0 and redis.call('LRANGE', queue, ARGV[1], ARGV[1] + limit - 1) or {}) do
  if bytes >= 1048576 then
    break
  end
  local body = redis.call('HGET', bodies, id) or ''
  answer[#answer + 1], answer[#answer + 2] = id, body
  bytes = bytes + #body
end
return answer
