-- tasks/report_served: report which queues a consumer serves, and find which other queues no one serves.
--
-- KEYS  served
-- ARGV  silent_ms  number > 0: a queue without a report for this long is not served
-- ARGV  count      number from 1: how many of the names are served; the rest are checked
-- ARGV  names..    of queues
-- RETURNS  {name, ...}: the checked queues that no one serves, and up to 100 that no one serves any more but someone
--          did in the last day; a name may come twice
-- TWICE    the same, counted from the second run
-- COST     O(N log Q), N names, Q queues that were served in the last day
-- @include server_time
local now_ms = math.floor(server_time() / 1000)
local day_ms = 86400000
redis.call('ZREMRANGEBYSCORE', served, '-inf', now_ms - day_ms)
for i = 3, 2 + count do
  redis.call('ZADD', served, now_ms, ARGV[i])
end
redis.call('PEXPIRE', served, day_ms)
local silent = redis.call('ZRANGEBYSCORE', served, '-inf', now_ms - silent_ms, 'LIMIT', 0, 100)
for i = 3 + count, #ARGV do
  local reported_ms = redis.call('ZSCORE', served, ARGV[i])
  if not reported_ms or tonumber(reported_ms) <= now_ms - silent_ms then
    silent[#silent + 1] = ARGV[i]
  end
end
return silent
