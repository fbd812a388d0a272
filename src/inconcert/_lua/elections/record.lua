-- elections/record: the current leader.
--
-- KEYS  holders record
--       record: string  'HOLDER NUMBER SINCE_MS CANDIDATE' of the term proclaimed last; until its lease ends
-- RETURNS  'NOW_US LEFT_MS RECORD': the rest of the lease, and the record | 'NOW_US 0 ' no leader
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include server_time
local now_us = server_time()
local proclaimed = redis.call('GET', record)
local ends = proclaimed and redis.call('ZSCORE', holders, string.match(proclaimed, '^%S+'))
local left_ms = ends and ends - math.floor(now_us / 1000) or 0
if left_ms <= 0 then
  return string.format('%.0f 0 ', now_us)
end
return string.format('%.0f %.0f ', now_us, left_ms) .. proclaimed
