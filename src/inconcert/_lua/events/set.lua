-- events/set: set the flag, and release all waiters.
--
-- KEYS  flag recent older
-- ARGV  request  string, unique to this call
-- ARGV  ttl_ms   integer > 0
-- ARGV  changes  channel of the waiters; the message is the server's time, in us
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if it was cleared in between
-- COST     O(W), W processes that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
if recall(recent, older, request) then
  return 1
end
local was_set = redis.call('EXISTS', flag) == 1
redis.call('SET', flag, 1, 'PX', ttl_ms)
remember(recent, older, request, 1)
if not was_set then  -- else nobody is kept waiting
  publish(changes, string.format('%.0f', server_time()))
end
return 1
