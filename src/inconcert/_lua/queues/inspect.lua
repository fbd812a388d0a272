-- queues/inspect: counts of a queue's items, its state, and the next items.
--
-- KEYS  bodies queue delayed dead shut line
-- ARGV  skip   integer >= 0: how many of the next items to skip
-- ARGV  limit  number from 0 to 1,000: how many items to show; fewer are shown if they have 1 MiB
-- RETURNS  {ready, delayed, claimed, dead, oldest_ms, due_in_ms, now_ms, shut, in_line, id, body, ...}: oldest_ms since the oldest of
--          those that are ready was put in, as far as the two ends of the queue tell; due_in_ms until the first delayed one is
--          due; -1 if none is; shut as above, 0 open; how many puts wait; then the items that come next
-- TWICE    the same; nothing is changed
-- COST     O(M), M items shown
-- @include server_time
-- @include if_small
local now_ms = math.floor(server_time() / 1000)
local ready, later, buried = redis.call('LLEN', queue), redis.call('ZCARD', delayed), redis.call('ZCARD', dead)
local oldest_ms = -1
for _, at in ipairs({0, -1}) do
  local id = redis.call('LINDEX', queue, at)
  local put_ms = id and string.match(redis.call('HGET', bodies, id) or '', '^%d+')
  oldest_ms = math.max(oldest_ms, put_ms and now_ms - put_ms or -1)
end
local due_ms = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
local due_in_ms = due_ms and math.max(0, due_ms - now_ms) or -1
local claimed = redis.call('HLEN', bodies) - ready - later - buried
local answer = {ready, later, claimed, buried, oldest_ms, due_in_ms, now_ms, tonumber(redis.call('GET', shut) or 0),
  redis.call('ZCARD', line)}
local bytes = 0
for _, id in ipairs(limit > 0 and redis.call('LRANGE', queue, skip, skip + limit - 1) or {}) do
  if bytes >= 1048576 then
    break
  end
  local body = redis.call('HGET', bodies, id) or ''
  answer[#answer + 1], answer[#answer + 2] = id, body
  bytes = bytes + #body
end
return if_small(answer, bytes)
