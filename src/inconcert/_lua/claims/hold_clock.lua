-- claims/hold_clock: let the lease clock stand still until now, for while heartbeats are refused because their slot moves.
--
-- A worker that learns in this way that the clock has not reached the end of its lease has at least the rest of it from now on.
--
-- KEYS  clock
-- RETURNS  the lease clock, ms | -1 there is none
-- TWICE    the same, counted from the second run
-- COST     O(1)
-- @include server_time
local HOUR_MS = 3600000
local at_ms = string.match(redis.call('GET', clock) or '', '^(%S+) %S+$')
if not at_ms then
  return -1
end
redis.call('SET', clock, string.format('%s %.0f', at_ms, math.floor(server_time() / 1000)), 'PX', HOUR_MS)
return tonumber(at_ms)
