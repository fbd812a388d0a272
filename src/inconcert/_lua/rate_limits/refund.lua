-- rate_limits/refund: leave the line, or give back permits that were not used.
--
-- KEYS  state line recent older
-- ARGV  request      'session.number', of the call that took them
-- ARGV  cost_us      integer > 0, as it had it
-- ARGV  burst_us     integer > 0, as it had it
-- ARGV  interval_us  integer > 0, as it had it
-- ARGV  inboxes      what the channel of each session's inbox begins with
-- RETURNS  1 it has left, or its permits count again | 0 not: it was refunded before, or is back by itself
-- TWICE    0, and nothing is changed
-- COST     O((1 + G) log N), N in line, G who are granted theirs now, 100 at most
-- @include server_time
-- @include recall
-- @include remember
-- @include read_limiter
-- @include serve_limiter
-- @include keep_limiter
local place = table.concat({request, cost_us, burst_us, interval_us}, ' ')
cost_us, burst_us, interval_us = tonumber(cost_us), tonumber(burst_us), tonumber(interval_us)
local now_us = server_time()
local end_us, queued_us, pace_us = read_limiter(state, interval_us, now_us)
local first = redis.call('ZRANGE', line, 0, 0)[1]
local granted = recall(recent, older, request)
local granted_us = tonumber(granted) or 0
-- First what frees memory: after it a full server lets the rest pass.
local has_left = redis.call('ZREM', line, place) == 1
local back_us = 0
if has_left then
  queued_us = queued_us - cost_us
elseif granted_us == end_us and end_us > now_us then
  back_us = cost_us  -- nobody has built upon it
elseif granted_us > now_us and end_us - burst_us <= now_us and pace_us == interval_us then
  back_us = math.min(cost_us, granted_us - now_us)  -- what is not back by itself
end
if granted ~= '-' then
  remember(recent, older, request, '-')
end
if not has_left and back_us == 0 then
  return 0
end
end_us = end_us - back_us
if first then
  local led = has_left and first or ''
  end_us, queued_us, pace_us =
    serve_limiter(line, recent, older, inboxes, request, led, end_us, queued_us, pace_us, now_us)
end
keep_limiter(state, line, end_us, queued_us, pace_us, now_us)
return 1
