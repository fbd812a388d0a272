-- queues/put: add items to a queue, now or later, all of them or none; or wait in line for room.  See also queues/put_plain.
--
-- KEYS  bodies queue delayed dead line states bell recent older told shut
-- ARGV  front     1 to the front of the queue, one after the other | 0 to its back
-- ARGV  delay_ms  integer >= 0
-- ARGV  maxsize   number, limit on unacknowledged items; -1 for no limit
-- ARGV  waits     1 to wait in line for room, under the request | 0
-- ARGV  inboxes   prefix of each session's inbox channel
-- ARGV  request   'session.number', unique to this put
-- ARGV  is_given  flag, 1 if the caller gave the id of its one item: it is added unless there is one with this id | 0
-- ARGV  items..   id, item: for each, at most 500
-- MOVES    new: enqueued put_off
-- RETURNS  1 added | 2 one with this id is there, or was put in in the last minute | 3 it is
--          shut down | 0 no room | -1 there is room, but
--          others are ahead in line; it joins the line if it waits
-- TWICE    the same, and adds nothing, even if there is room by then; if it waits, it re-checks from its place
-- COST     O(N log D), N items, D delayed items

-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include delay_job
-- @include extend_ttl
-- @include still_ones
-- @include first_in_line
-- @include wake_first_putter
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- @guard queue:list bell:list delayed:zset
local count = (#ARGV - ITEMS + 1) / 2
local home = string.match(request, '^(.*)%.')
local given = is_given and 'id ' .. ARGV[ITEMS]
local putter = given and recall(recent, older, given)
if putter == request then
  return 1
elseif putter or given and redis.call('HEXISTS', bodies, ARGV[ITEMS]) == 1 then
  remember(recent, older, request, 2)
  return 2
end
if redis.call('EXISTS', shut) == 1 then
  remember(recent, older, request, 3)
  return 3
end
local room, first
if maxsize >= 0 then
  room = maxsize - (redis.call('HLEN', bodies) - redis.call('ZCARD', dead))
  first = first_in_line(line, inboxes, still_ones(told, home, now_ms))
  local must_wait = first and first ~= request
  if room < count or must_wait then
    answer = room > 0 and must_wait and -1 or 0
    if waits == '1' then
      redis.call('ZADD', line, 'NX', string.format('%.0f', now_us), request)
      extend_ttl(line, 60000)
    else
      remember(recent, older, request, answer)
    end
    redis.call('HDEL', told, home)  -- it has come
    if answer == -1 then
      wake_first_putter(line, inboxes)  -- the notification may have been lost
      redis.call('HSETNX', told, string.match(first, '^(.*)%.'), string.format('%.0f', now_ms))
      extend_ttl(told, 60000)
    end
    return answer
  end
end

local ids = {}
for i = ITEMS, #ARGV, 2 do
  redis.call('HSET', bodies, ARGV[i], string.format('%.0f ', now_ms) .. ARGV[i + 1])
  if delay_ms == '0' then
    ids[#ids + 1] = ARGV[i]
  else
    delay_job(delayed, bell, states, ARGV[i], now_ms + delay_ms, '')
  end
end
if #ids > 0 then
  redis.call(front == '1' and 'LPUSH' or 'RPUSH', queue, unpack(ids))
  ring(bell)
end
remember(recent, older, given or request, given and request or '1')  -- one entry each: so many are kept
if maxsize >= 0 then
  redis.call('ZREM', line, request)
  redis.call('HDEL', told, home)
  if room > count then
    wake_first_putter(line, inboxes)
  end
end
return 1
