-- rate_limits/settle: give permits back that were taken and not used, or take those that were used beyond.
--
-- KEYS  state line recent older
-- ARGV  request      'session.number', unique to this call
-- ARGV  by_us        number, in which as many permits come back; below 0 to give them back
-- ARGV  interval_us  number > 0, in which one permit comes back to the caller
-- ARGV  inboxes      what the channel of each session's inbox begins with
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
local end_us, queued_us, pace_us = read_limiter(state, interval_us, now_us)
redis.call('DEL', state)  -- first: it frees memory, so a full server lets the rest pass
remember(recent, older, request, '=')
-- As many permits, at the pace that there is. Of those given back no more count than are out; an overdraft begins now.
end_us = math.max(end_us, now_us) + math.ceil(by_us * pace_us / interval_us)
local first = redis.call('ZRANGE', line, 0, 0)[1]
if first then
  local led = by_us > 0 and first or ''  -- after an overdraft the first asks when it was told to, and waits on
  end_us, queued_us, pace_us =
    serve_limiter(line, recent, older, inboxes, request, led, end_us, queued_us, pace_us, now_us)
else
  queued_us = 0
end
if end_us > now_us or queued_us > 0 then
  keep_limiter(state, line, math.max(end_us, 0), queued_us, pace_us, now_us)
end
return 1
