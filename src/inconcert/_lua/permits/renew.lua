-- permits/renew: make a lease last longer, if it has not lapsed.
--
-- KEYS  holders
--       holders: zset  holder -> lease end, server ms
-- ARGV  holder  string  'session.number'
-- ARGV  ttl_ms  number > 0
-- RETURNS  1 renewed | 0 not held, or lapsed
-- TWICE    the same, counted from the second run
-- COST     O(log N), N holders
-- @include server_time
-- @include keep_lease
-- @include remembered_ms
local now_ms = math.floor(server_time() / 1000)
return keep_lease(holders, holder, ttl_ms, now_ms, remembered_ms()) and 1 or 0
