-- signals/broadcast: wake every waiter, and reach every subscriber.
--
-- KEYS[1]  waiters  zset    address -> ticket, server us
-- KEYS[2]  handed   hash    address -> the payload that it was notified of
-- KEYS[3]  earlier  hash    the same, from before
-- KEYS[4]  recent   hash    request -> its answer, 120 s
-- KEYS[5]  older    hash    the same, from before; at most 120 s
-- KEYS[6]  last     string  'AT_US PAYLOAD' of the last broadcast; 60 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  payload  JSON
-- ARGV[3]  channel  the message is 'AT_US OPEN PAYLOAD'; OPEN is how many waiters have not yet confirmed their
--          notification: unless it is 0, a waiter may be one of them
-- ARGV[4]  plain    the channel that patterns match, if that is another; otherwise empty
-- RETURNS  how many connections it reached
-- TWICE    the same, and it is not published again
-- COST     O(L), L connections that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local waiters, handed, earlier, recent, older, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local request, payload, channel, plain = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local newest = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
local reached = recall(recent, older, request)
if reached then
  return tonumber(reached)
end
local at = string.format('%.0f', math.max(server_time(), (tonumber(newest) or 0) + 1))
redis.call('SET', last, at .. ' ' .. payload, 'PX', 60000)
redis.call('UNLINK', waiters)
local open = redis.call('HLEN', handed) + redis.call('HLEN', earlier)
local message = at .. ' ' .. open .. ' ' .. payload
reached = publish(channel, message) + (plain ~= '' and publish(plain, message) or 0)
remember(recent, older, request, reached)
return reached
