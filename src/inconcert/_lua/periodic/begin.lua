-- periodic/begin: begin a run if it is due.
--
-- KEYS[1]  latest     string  request of the latest run; until the next is due
-- ARGV[1]  request    string, unique to this run
-- ARGV[2]  period_ms  integer > 0
-- RETURNS  0 it begins | milliseconds until it is due
-- TWICE    the same, for a period
-- COST     O(1)
local latest = KEYS[1]
local request, period_ms = ARGV[1], ARGV[2]
if redis.call('SET', latest, request, 'NX', 'PX', period_ms) or redis.call('GET', latest) == request then
  return 0
end
local left_ms = redis.call('PTTL', latest)
if left_ms > tonumber(period_ms) then  -- the clock was set back since, or the period was longer
  redis.call('PEXPIRE', latest, period_ms)
  return tonumber(period_ms)
end
return math.max(1, left_ms)
