-- tasks/note_unknown: a worker has claimed a job that it cannot run: for how long has no worker been able to?
--
-- KEYS  unknown
-- ARGV  id        string
-- ARGV  grace_ms  number > 0
-- RETURNS  for how many ms, 0 for the first time | -1: for the whole grace; it is forgotten, so that a replay begins anew
-- TWICE    the same, plus the time in between; after -1 it begins anew, so the job gets another grace
-- COST     O(log N), N such jobs
-- @include server_time
-- @include extend_ttl
local DAY_MS = 86400000

local now_ms = math.floor(server_time() / 1000)
local oldest = redis.call('ZRANGEBYSCORE', unknown, '-inf', now_ms - grace_ms - DAY_MS, 'LIMIT', 0, 100)
if #oldest > 0 then
  redis.call('ZREM', unknown, unpack(oldest))  -- of jobs that others could run since
end
local first_ms = tonumber(redis.call('ZSCORE', unknown, id) or now_ms)
if now_ms - first_ms >= grace_ms then
  redis.call('ZREM', unknown, id)
  return -1
end
redis.call('ZADD', unknown, first_ms, id)
extend_ttl(unknown, grace_ms + DAY_MS)
return math.max(0, now_ms - first_ms)
