-- queues/join: how many items are left; who asks is told when none is.
--
-- KEYS[1]  bodies   hash  id -> 'put_ms item'
-- KEYS[2]  dead     zset  id -> when it was dead-lettered, server ms
-- KEYS[3]  joiners  zset  address -> when it asked, server ms: those that wait until nothing is left; 60 s
-- ARGV[1]  address  'session.number' of the caller, who asks again within 60 s while it waits
-- RETURNS  how many are ready, delayed or claimed; 0 if the caller waits no longer
-- TWICE    the same; it is told once
-- COST     O(log N + M), N waiters, M of them gone
-- @include server_time
-- @include extend_ttl
local bodies, dead, joiners, address = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
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
