-- tasks/append_items: add items to the stream of a running job; the first call of an attempt begins the stream anew.
--
-- KEYS  claimed stream items
--       claimed: hash, of this worker
--       stream: hash  run: when its attempt began here, server ms, rising; by: 'WORKER PLACE'; attempt; last: number of
--         the latest item; bytes of all items that are kept
--       items: list  signed JSON, the latest has the number `last`; at most 10,000, and 16 MiB
-- ARGV  id        string
-- ARGV  worker    string
-- ARGV  position  integer, as it was claimed
-- ARGV  attempt   integer
-- ARGV  first     number from 1: the number of the first of these items in this attempt
-- ARGV  ttl_ms    integer > 0: how long all is kept after this call
-- ARGV  channel   channel that announces new items of the job
-- ARGV  added..   the items, signed JSON; at most 500
-- RETURNS  1 added | 0 the worker does not hold it at this position
-- TWICE    the same, and nothing is added, even if more items were added in between
-- COST     O(N + D), N items given, D dropped; and the processes that follow the stream
-- @include server_time
-- @include publish
local MOST, MOST_BYTES = 10000, 16777216

if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then
  return 0
end
local by = worker .. ' ' .. position
local before, run, last, bytes = unpack(redis.call('HMGET', stream, 'by', 'run', 'last', 'bytes'))
local length = redis.call('LLEN', items)
run, last, bytes = tonumber(run or 0), tonumber(last or 0), length > 0 and tonumber(bytes or 0) or 0
local begins = before ~= by
local continues = not begins and first <= last + 1  -- otherwise the server has lost items: those before must go, too
if begins then
  run = math.max(run + 1, math.floor(server_time() / 1000))
end
if not continues then
  last, bytes, length = first - 1, 0, 0
end
local added = {unpack(ARGV, ADDED + last + 1 - first)}
for _, item in ipairs(added) do
  bytes = bytes + #item
end
local drop = math.max(0, length + #added - MOST)
if drop > 0 then
  for _, item in ipairs(redis.call('LRANGE', items, 0, drop - 1)) do
    bytes = bytes - #item
  end
end
while bytes > MOST_BYTES do
  bytes = bytes - #redis.call('LINDEX', items, drop)
  drop = drop + 1
end

publish(channel, id)  -- first: a user's rights may refuse it
redis.call('HSET', stream, 'run', string.format('%.0f', run), 'by', by, 'attempt', attempt,
  'last', last + #added, 'bytes', bytes)
redis.call('PEXPIRE', stream, ttl_ms)
if not continues then
  redis.call('DEL', items)
end
if #added > 0 then
  redis.call('RPUSH', items, unpack(added))
end
if drop > 0 then
  redis.call('LTRIM', items, drop, -1)
end
redis.call('PEXPIRE', items, ttl_ms)
return 1
