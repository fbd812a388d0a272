-- queues/put_plain: add items that may be taken now to a queue without a limit.
--
-- KEYS  bodies queue bell delayed recent older shut
-- ARGV  front    flag, 1 to the front of the queue, one after the other | 0 to its back
-- ARGV  items..  id, item: for each, at most 500; the id of the first is that of this request
-- MOVES    new: enqueued
-- RETURNS  1 added | 3 the queue is shut down
-- TWICE    the same, and adds nothing
-- COST     O(N), N items
local FEW = 16  -- items in the queue, for which bodies need not be a table
local request = ARGV[ITEMS]
local answer = redis.call('HGET', recent, request) or redis.call('HGET', older, request)  -- see remember
if answer then
  return tonumber(answer)
end
local time = redis.call('TIME')
local put_at, ids = time[1] .. string.sub('00000' .. time[2], -6, -4) .. ' ', {}
for i = ITEMS, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
  ARGV[i + 1] = put_at .. ARGV[i + 1]
end
-- A foreign key stops the script here, before anything is changed.
local first = redis.call('LINDEX', bell, 0)
local is_open = redis.call('EXISTS', shut, delayed) == 0
if not is_open then  -- or some are delayed
  -- @guard delayed:zset
  is_open = redis.call('EXISTS', shut) == 0
end
if is_open then
  local length = redis.call(front and 'LPUSH' or 'RPUSH', queue, unpack(ids))
  local long = length > FEW and length - #ids <= FEW and string.rep('#', 65)  -- makes a table of it, see tasks/enqueue_plain
  if long then
    redis.call('HSET', bodies, long, '')
  end
  redis.call('HSET', bodies, unpack(ARGV, ITEMS))
  if long then
    redis.call('HDEL', bodies, long)
  end
end
-- @include remember
remember(recent, older, request, is_open and '1' or '3')
if not is_open then
  return 3
end
if first == '1' then
  return 1  -- a consumer is woken already
end
-- @include ring
ring(bell)
return 1
