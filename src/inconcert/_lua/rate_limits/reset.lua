-- rate_limits/reset: give all permits back, and serve the line.
--
-- KEYS  state line recent older
-- ARGV  request  'session.number', unique to this call
-- ARGV  inboxes  what the channel of each session's inbox begins with
-- RETURNS  1 | 0 this call has done it before
-- TWICE    0, and nothing is changed
-- COST     O((1 + G) log N), N in line, G who are granted theirs now, 100 at most
-- @include server_time
-- @include recall
-- @include remember
-- @include read_limiter
-- @include serve_limiter
-- @include keep_limiter
if recall(recent, older, request) then
  return 0
end
local now_us = server_time()
local _, queued_us, pace_us = read_limiter(state, 1, now_us)
redis.call('DEL', state)  -- first: it frees memory, so a full server lets the rest pass
remember(recent, older, request, '=')
local end_us, left_us
end_us, left_us, pace_us = serve_limiter(line, recent, older, inboxes, request, '', 0, queued_us, pace_us, now_us)
if end_us > now_us or left_us > 0 then
  keep_limiter(state, line, end_us, left_us, pace_us, now_us)
end
return 1
