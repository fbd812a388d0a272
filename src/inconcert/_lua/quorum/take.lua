-- quorum/take: take the lock on this server, or renew the lease on it.
--
-- KEYS  holder
-- ARGV  me      string, unique to this attempt
-- ARGV  ttl_ms  integer > 0
-- RETURNS  2 it was mine, and lasts a full ttl from now | 1 it was free and is now mine | 0 another has it
-- TWICE    2 if the first run took it; otherwise the same
-- COST     O(1)
local has = redis.call('GET', holder)
if not has then
  redis.call('SET', holder, me, 'PX', ttl_ms)
  return 1
elseif has == me then
  redis.call('PEXPIRE', holder, ttl_ms)  -- needs no memory, so a full server lets it pass
  return 2
end
return 0
