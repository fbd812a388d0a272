-- queues/put: add items to a queue, now or later, all of them or none; or stand in line until there is room.
--
-- KEYS[1]   bodies    hash    id -> 'put_ms item'; permanent until acknowledged
-- KEYS[2]   queue     list    ids, the next one first; permanent until claimed
-- KEYS[3]   delayed   zset    id -> due time, server ms; permanent until due
-- KEYS[4]   dead      zset    id -> when it was set aside, server ms
-- KEYS[5]   line      zset    address -> ticket: those who wait for room
-- KEYS[6]   states    hash    id -> where it is, if not in its queue; permanent until acknowledged
-- KEYS[7]   bell      list    at most one token
-- KEYS[8]   recent    hash    id of the first item -> 1, of what was put in of late; see remember()
-- KEYS[9]   older     hash    likewise, from before
-- ARGV[1]   front     1 to the front of the queue, one after the other | 0 to its back
-- ARGV[2]   delay_ms  integer >= 0
-- ARGV[3]   maxsize   how many may be there that are not acknowledged; -1 for any number
-- ARGV[4]   address   of who waits for room | '' for nobody
-- ARGV[5]   inboxes   what the channel of each session's inbox begins with
-- ARGV[6..] id, item: for each, at most 500
-- RETURNS   1 added | 0 no room, or others are before it in line; it stands in line if it has an address
-- TWICE     the same, and adds nothing, for 60 s, if fewer than 10,000 others come after it
-- COST      O(N log D), N items, D delayed items
-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include put_off
-- @include outlive
-- @include first_in_line
-- @include let_in
local bodies, queue, delayed, dead, line = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local states, bell, recent, older = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local front, delay_ms, maxsize, address, inboxes = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local request, count = ARGV[6], (#ARGV - 5) / 2
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
if recall(recent, older, request) then
  return 1
end
redis.call('LLEN', queue)  -- a key that is not ours stops the script before it has changed anything
redis.call('LLEN', bell)
redis.call('ZCARD', delayed)
local room
if maxsize >= 0 then
  room = maxsize - (redis.call('HLEN', bodies) - redis.call('ZCARD', dead))
  local first = first_in_line(line, inboxes)
  if room < count or (first and first ~= address) then
    if address ~= '' then
      redis.call('ZADD', line, 'NX', string.format('%.0f', now_us), address)
      outlive(line, 60000)
    end
    if room > 0 then
      let_in(line, inboxes)  -- it may not have heard
    end
    return 0
  end
end

local ids = {}
for i = 6, #ARGV, 2 do
  redis.call('HSET', bodies, ARGV[i], string.format('%.0f ', now_ms) .. ARGV[i + 1])
  if delay_ms == '0' then
    ids[#ids + 1] = ARGV[i]
  else
    put_off(delayed, bell, states, ARGV[i], now_ms + delay_ms, '')
  end
end
if #ids > 0 then
  redis.call(front == '1' and 'LPUSH' or 'RPUSH', queue, unpack(ids))
  ring(bell)
end
remember(recent, older, request, '1')
if maxsize >= 0 then
  redis.call('ZREM', line, address)
  if room > count then
    let_in(line, inboxes)
  end
end
return 1
