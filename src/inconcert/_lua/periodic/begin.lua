-- periodic/begin: begin a run if it is due.
--
-- KEYS  latest recent older
-- ARGV  request    string, unique to this call
-- ARGV  period_ms  integer > 0
-- RETURNS  0 it begins | milliseconds until it is due
-- TWICE    the same, and no other run is begun, even if one is due by then
-- COST     O(1)
-- @include recall
-- @include remember
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = 0
if not redis.call('SET', latest, 1, 'NX', 'PX', period_ms) then
  local left_ms = redis.call('PTTL', latest)
  if left_ms > tonumber(period_ms) then  -- the clock was set back since, or the period was longer
    redis.call('PEXPIRE', latest, period_ms)
  end
  answer = math.max(1, math.min(left_ms, tonumber(period_ms)))
end
remember(recent, older, request, answer)
return answer
