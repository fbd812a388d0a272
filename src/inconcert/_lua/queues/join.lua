-- queues/join: how many items are left; who asks is told when none is.
--
-- KEYS  bodies dead joiners
-- ARGV  address  'session.number' of the caller, who asks again within 60 s while it waits
-- RETURNS  how many are ready, delayed or claimed; 0 if the caller waits no longer
-- TWICE    the same; it is told once
-- COST     O(log N + M), N waiters, M of them gone
-- @include server_time
-- @include extend_ttl
local left = redis.call('HLEN', bodies) - redis.call('ZCARD', dead)
if left == 0 then
  redis.call('ZREM', joiners, address)
  return 0
end
local now_ms = math.floor(server_time() / 1000)
redis.call('ZREMRANGEBYSCORE', joiners, '-inf', now_ms - 60000)
redis.call('ZADD', joiners, now_ms, address)
extend_ttl(joiners, 60000)
return left
