-- rate_limits/inspect: how far a limiter is used up, and how many wait.
--
-- KEYS[1]  state  string  'END_US QUEUED_US PACE_US': when all are back, server us; what those in line want; in which one is back
-- KEYS[2]  line   zset    'REQUEST COST_US BURST_US INTERVAL_US' -> ticket, server us
-- ARGV[1]  interval_us  integer > 0, in which one permit comes back to the caller
-- RETURNS  {full_us, out_us, in_line}: how long it is until all permits are back, if those in line take theirs; and the same number of
--          permits in the caller's interval
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include server_time
-- @include end_at_pace
local state, line = KEYS[1], KEYS[2]
local interval_us = tonumber(ARGV[1])
local now_us = server_time()
local end_us, queued_us, pace_us = string.match(redis.call('GET', state) or '0 0 1', '^(%d+) (%d+) (%d+)$')
local in_line = redis.call('ZCARD', line)
local full_us = math.max(0, end_us - now_us) + (in_line > 0 and queued_us or 0)
return {full_us, end_at_pace(now_us + full_us, tonumber(pace_us), interval_us, now_us) - now_us, in_line}
