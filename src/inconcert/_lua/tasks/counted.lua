-- tasks/counted: of which tasks workers have counted ends in the last two weeks, and which jobs ended last.
--
-- KEYS  counted lately
-- RETURNS  {now_ms, {name, ...}, {entry, ...}}: entries the latest first
-- TWICE    the same; nothing is changed
-- COST     O(N), N tasks, at most 1,000, and 200 jobs
-- @include server_time
local now_ms = math.floor(server_time() / 1000)
local first_day = math.floor(now_ms / 86400000) - 14
return {now_ms, redis.call('ZRANGEBYSCORE', counted, first_day, '+inf'), redis.call('LRANGE', lately, 0, -1)}
