-- rate_limits/take: take permits, or stand in line for them; or ask again from one's place in the line.
--
-- KEYS[1]  state       string  'END_US QUEUED_US': when all that were granted are back, server us; what those in line want
-- KEYS[2]  line        zset    'REQUEST COST_US BURST_US' -> ticket, server us
-- KEYS[3]  recent      hash    request -> the end after its grant, or '-' refunded; 120 s
-- KEYS[4]  older       hash    the same, from before; at most 120 s
-- ARGV[1]  request     'session.number', unique to this call
-- ARGV[2]  cost_us     integer > 0, in which these permits come back
-- ARGV[3]  burst_us    integer >= cost_us, in which all permits come back
-- ARGV[4]  longest_us  integer >= 0, longest wait
-- ARGV[5]  ticket      0 to come, else the place to have back
-- ARGV[6]  inboxes     what the channel of each session's inbox begins with
-- RETURNS  {1, wait_us, full_us} granted, to be used after the wait | {0, wait_us, full_us} not: it would be too long a wait, or
--          was refunded | {2, wait_us, full_us, ticket} in line, to ask again after the wait if nothing was heard until then;
--          full_us is how long it is until all permits are back, if those in line take theirs
-- TWICE    the same place, or what is left of the wait after the grant, and nothing more is taken
-- COST     O((1 + G) log N), N in line, G who are granted theirs now, 100 at most
-- @include server_time
-- @include recall
-- @include remember
-- @include serve_limiter
-- @include keep_limiter
local state, line, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local request, cost_us, burst_us, longest_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local ticket, inboxes = tonumber(ARGV[5]), ARGV[6]
local place = request .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]
local now_us = server_time()
local end_us, queued_us = string.match(redis.call('GET', state) or '0 0', '^(%d+) (%d+)$')
end_us, queued_us = tonumber(end_us), tonumber(queued_us)
local was_end_us, was_queued_us = end_us, queued_us
local first = redis.call('ZRANGE', line, 0, 0)[1]
if first then
  end_us, queued_us, first = serve_limiter(line, recent, older, inboxes, request, first, end_us, queued_us, now_us)
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
  wait_us = math.max(end_us, now_us) + queued_us + cost_us - burst_us - now_us
  if not first and wait_us <= math.min(longest_us, 5000) then
    outcome, end_us = 1, math.max(end_us, now_us) + cost_us
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
  keep_limiter(state, line, end_us, queued_us, now_us)
end
local free_us = math.max(end_us, now_us) - now_us  -- until all are back, but for those in line
if outcome ~= 2 then
  return {outcome, math.max(0, wait_us), free_us + queued_us}
end
-- The first is told exactly when its time comes. A waiter behind it hears from it, and asks by itself when all those in line
-- would have been served, should the first be dead.
first = redis.call('ZRANGE', line, 0, 0)[1]
local its_cost_us, its_burst_us = string.match(first, ' (%d+) (%d+)$')
wait_us = free_us + its_cost_us - its_burst_us
if first ~= place then
  wait_us = math.max(wait_us, free_us + queued_us - burst_us)
end
return {2, math.max(0, wait_us), free_us + queued_us, ticket}
