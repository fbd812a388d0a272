-- rate_limits/take: take permits, from now on or from a later time.
--
-- KEYS[1]  taken       zset    request -> when all that were taken up to it are back, server us; until all are back
-- KEYS[2]  recent      hash    request -> the same, 120 s
-- KEYS[3]  older       hash    the same, from before; at most 120 s
-- ARGV[1]  request     string, unique to this call
-- ARGV[2]  cost_us     integer > 0, in which these permits come back
-- ARGV[3]  burst_us    integer >= cost_us, in which all permits come back
-- ARGV[4]  longest_us  integer >= 0, longest wait
-- RETURNS  {1, wait_us, full_us} taken, to be used after the wait | {0, wait_us, full_us} not: it would be too long a wait;
--          full_us is how long it is until all permits are back
-- TWICE    what is left of the same wait, and nothing more is taken
-- COST     O(log N), N who wait
-- @include server_time
-- @include recall
-- @include remember
local taken, recent, older = KEYS[1], KEYS[2], KEYS[3]
local request, cost_us, burst_us, longest_us = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local now_us = server_time()
local last = redis.call('ZRANGE', taken, -1, -1, 'WITHSCORES')[2]
local full_us = math.max(0, (tonumber(last) or 0) - now_us)
local answer = recall(recent, older, request)
local end_us = tonumber(answer) or now_us + full_us + cost_us
local wait_us = math.max(0, end_us - burst_us - now_us)
if answer then
  return {1, wait_us, full_us}
end
if wait_us > longest_us then
  return {0, wait_us, full_us}
end

answer = string.format('%.0f', end_us)
redis.call('ZADD', taken, answer, request)
if not last then
  redis.call('ZADD', taken, string.format('%.0f', now_us), '')  -- what is left when the first gives back
end
-- Of those whose wait is over two are kept, for the latest may be given back, and the one before it then counts.
local over = redis.call('ZCOUNT', taken, '-inf', string.format('%.0f', now_us + burst_us))
if over > 2 then
  redis.call('ZREMRANGEBYRANK', taken, 0, math.min(over - 2, 100) - 1)
end
-- One more, for the server counts the life of a key from a full millisecond.
redis.call('PEXPIRE', taken, math.ceil((end_us - now_us) / 1000) + 1)
remember(recent, older, request, answer)
return {1, wait_us, full_us + cost_us}
