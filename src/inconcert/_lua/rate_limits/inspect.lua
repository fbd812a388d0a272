-- rate_limits/inspect: how far a limiter is used up, and how many wait.
--
-- KEYS  state line
-- ARGV  interval_us  number > 0, in which one permit comes back to the caller
-- RETURNS  {full_us, out_us, in_line}: how long it is until all permits are back, if those in line take theirs; and the same number of
--          permits in the caller's interval
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include server_time
-- @include end_at_pace
local now_us = server_time()
local end_us, queued_us, pace_us = string.match(redis.call('GET', state) or '0 0 1', '^(%d+) (%d+) (%d+)$')
local in_line = redis.call('ZCARD', line)
local full_us = math.max(0, end_us - now_us) + (in_line > 0 and queued_us or 0)
return {full_us, end_at_pace(now_us + full_us, tonumber(pace_us), interval_us, now_us) - now_us, in_line}
