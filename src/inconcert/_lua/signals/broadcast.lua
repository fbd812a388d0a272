-- signals/broadcast: wake every waiter, and reach every subscriber.
--
-- KEYS  waiters handed earlier recent older last
-- ARGV  request  string, unique to this call
-- ARGV  payload  JSON
-- ARGV  channel  the message is 'AT_US OPEN PAYLOAD'; OPEN is how many waiters have not yet confirmed their
--                notification: unless it is 0, a waiter may be one of them
-- ARGV  plain    the channel that patterns match, if that is another; otherwise empty
-- RETURNS  how many connections it reached
-- TWICE    the same, and it is not published again
-- COST     O(L), L connections that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
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
