-- rate_limits/take: take permits, or stand in line for them; or ask again from one's place in the line.
--
-- KEYS  state line recent older
-- ARGV  request      'session.number', unique to this call
-- ARGV  cost_us      integer > 0, in which these permits come back
-- ARGV  burst_us     integer >= cost_us, in which all permits come back
-- ARGV  interval_us  integer > 0, in which one permit comes back
-- ARGV  longest_us   number >= 0, longest wait
-- ARGV  ticket       number, 0 to come, else the place to have back
-- ARGV  inboxes      what the channel of each session's inbox begins with
-- RETURNS  {1, wait_us, full_us} granted, to be used after the wait | {0, wait_us, full_us} not: it would be too long a wait, or
--          was refunded | {2, wait_us, full_us, ticket} in line, to ask again after the wait if nothing was heard until then;
--          full_us is as many permits as are out then, in the time in which they come back to the caller
-- TWICE    the same place, or what is left of the wait after the grant, and nothing more is taken
-- COST     O((1 + G) log N), N in line, G who are granted theirs now, 100 at most
-- @include server_time
-- @include recall
-- @include remember
-- @include read_limiter
-- @include quicken
-- @include end_at_pace
-- @include limiter_wait
-- @include grant_permits
-- @include serve_limiter
-- @include keep_limiter
local place = table.concat({request, cost_us, burst_us, interval_us}, ' ')
cost_us, burst_us, interval_us = tonumber(cost_us), tonumber(burst_us), tonumber(interval_us)
local now_us = server_time()
local end_us, queued_us, pace_us, was_end_us = read_limiter(state, interval_us, now_us)
local was_queued_us = queued_us
local first = redis.call('ZRANGE', line, 0, 0)[1]
if first then
  local led = end_us == was_end_us and first or ''  -- the first is told again if its time comes sooner than it knows
  for _ = 1, 2 do
    end_us, queued_us, pace_us, first =
      serve_limiter(line, recent, older, inboxes, request, led, end_us, queued_us, pace_us, now_us)
    local served_us = end_us
    end_us, pace_us = quicken(end_us, pace_us, interval_us, now_us)
    if not first or end_us == served_us then
      break
    end
    led = ''
  end
else
  queued_us = 0
end

local outcome, wait_us
local granted = recall(recent, older, request)
local stood = first and redis.call('ZSCORE', line, place)
if granted then
  outcome, wait_us = granted == '-' and 0 or 1, (tonumber(granted) or 0) - burst_us - now_us
elseif stood then
  outcome, ticket = 2, tonumber(stood)
else
  wait_us = limiter_wait(end_us, pace_us, queued_us, cost_us, burst_us, interval_us, now_us)
  if not first and wait_us <= math.min(longest_us, 5000) then
    outcome = 1
    end_us, pace_us = grant_permits(end_us, pace_us, wait_us, cost_us, interval_us, now_us), interval_us
    remember(recent, older, request, string.format('%.0f', end_us))
  elseif ticket == 0 and wait_us > longest_us then
    outcome = 0
  else
    outcome = 2
    if ticket == 0 then
      local latest = redis.call('ZREVRANGE', line, 0, 0, 'WITHSCORES')[2]
      ticket = math.max(now_us, (tonumber(latest) or 0) + 1)
    end
    redis.call('ZADD', line, string.format('%.0f', ticket), place)
    queued_us = queued_us + cost_us
  end
end
if end_us ~= was_end_us or queued_us ~= was_queued_us then
  keep_limiter(state, line, end_us, queued_us, pace_us, now_us)
end
local free_us = math.max(end_us, now_us) - now_us  -- until all are back, but for those in line
local full_us = end_at_pace(now_us + free_us + queued_us, pace_us, interval_us, now_us) - now_us
if outcome ~= 2 then
  return {outcome, math.max(0, wait_us), full_us}
end
-- The first is told exactly when its time comes. A waiter behind it hears from it, and asks by itself when all those in line
-- would have been served, should the first be dead.
first = redis.call('ZRANGE', line, 0, 0)[1]
local its_cost_us, its_burst_us, its_interval_us = string.match(first, ' (%d+) (%d+) (%d+)$')
wait_us = limiter_wait(end_us, pace_us, 0, tonumber(its_cost_us), tonumber(its_burst_us), tonumber(its_interval_us), now_us)
if first ~= place then
  wait_us = math.max(wait_us, limiter_wait(end_us, pace_us, queued_us, 0, burst_us, interval_us, now_us))
end
return {2, math.max(0, wait_us), full_us, ticket}
