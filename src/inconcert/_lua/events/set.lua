-- events/set: set the flag, and release all waiters.
--
-- KEYS[1]  flag     string  '1' while set; ttl_ms
-- KEYS[2]  recent   hash    request -> its answer, 120 s
-- KEYS[3]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  ttl_ms   integer > 0
-- ARGV[3]  changes  channel of the waiters; the message is the server's time, in us
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if it was cleared in between
-- COST     O(W), W processes that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local flag, recent, older = KEYS[1], KEYS[2], KEYS[3]
local request, ttl_ms, changes = ARGV[1], ARGV[2], ARGV[3]
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
