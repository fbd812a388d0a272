-- queues/standby: whether a consumer that found nothing is to end, because its queue is shut down; it is told later otherwise.
--
-- KEYS  shut standby bodies dead joiners
-- ARGV  address  'session.number' of the caller, who asks again within 60 s while it waits
-- RETURNS  1 it is to end | 0 it is told when the queue is shut down, or when no item of one that is shut is left
-- TWICE    the same; it is told once
-- COST     O(log N + M), N waiters, M of them gone
-- @include server_time
-- @include extend_ttl
local state = redis.call('GET', shut)
local is_over = state == '2' or state and redis.call('HLEN', bodies) == redis.call('ZCARD', dead)
if is_over then
  redis.call('ZREM', standby, address)
  redis.call('ZREM', joiners, address)
  return 1
end
local now_ms = math.floor(server_time() / 1000)
local waits_in = state and joiners or standby
redis.call('ZREMRANGEBYSCORE', waits_in, '-inf', now_ms - 60000)
redis.call('ZADD', waits_in, now_ms, address)
extend_ttl(waits_in, 60000)
return 0
