-- rate_limits/inspect: how far a limiter is used up, and how many wait.
--
-- KEYS[1]  state  string  'END_US QUEUED_US': when all that were granted are back, server us; what those in line want
-- KEYS[2]  line   zset    'REQUEST COST_US BURST_US' -> ticket, server us
-- RETURNS  {full_us, in_line}: how long it is until all permits are back, if those in line take theirs
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include server_time
local state, line = KEYS[1], KEYS[2]
local end_us, queued_us = string.match(redis.call('GET', state) or '0 0', '^(%d+) (%d+)$')
local in_line = redis.call('ZCARD', line)
return {math.max(0, end_us - server_time()) + (in_line > 0 and queued_us or 0), in_line}
