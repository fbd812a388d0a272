-- permits/renew: make a lease last longer, if it has not lapsed.
--
-- KEYS[1]  holders  zset    holder -> lease end, server ms
-- ARGV[1]  holder   string  'session.number'
-- ARGV[2]  ttl_ms   integer > 0
-- RETURNS  1 renewed | 0 not held, or lapsed
-- TWICE    the same, counted from the second run
-- COST     O(log N), N holders
-- @include server_time
local holders = KEYS[1]
local holder, ttl_ms = ARGV[1], tonumber(ARGV[2])
local now_ms = math.floor(server_time() / 1000)
local ends = redis.call('ZSCORE', holders, holder)
if not ends or tonumber(ends) <= now_ms then
  return 0
end
-- First, for it needs no memory: after it a full server lets the other pass.
redis.call('PEXPIRE', holders, math.max(ttl_ms, redis.call('PTTL', holders)))
redis.call('ZADD', holders, 'XX', now_ms + ttl_ms, holder)
return 1
