-- elections/renew: make a term last longer, if its lease has not lapsed, and proclaim it if not yet done.
--
-- KEYS  holders record
--       record: string  'HOLDER NUMBER SINCE_MS CANDIDATE' of the term proclaimed last; until its lease ends
-- ARGV  holder     string  'session.number'
-- ARGV  ttl_ms     number > 0
-- ARGV  number     integer, the term's
-- ARGV  candidate  string
-- ARGV  changes    channel of the watchers, which receive what elections/record answers
-- RETURNS  1 renewed | 0 not held, or lapsed
-- TWICE    the same, counted from the second run; it is proclaimed once
-- COST     O(log N + W), N holders, W processes that watch
-- @include server_time
-- @include keep_lease
-- @include remembered_ms
-- @include publish
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
if not keep_lease(holders, holder, ttl_ms, now_ms, remembered_ms()) then
  return 0
end
local proclaimed = redis.call('GET', record)
if proclaimed and string.match(proclaimed, '^%S+') == holder then
  redis.call('PEXPIRE', record, ttl_ms)
  return 1
end
proclaimed = holder .. ' ' .. number .. string.format(' %.0f ', now_ms) .. candidate
redis.call('SET', record, proclaimed, 'PX', ttl_ms)
publish(changes, string.format('%.0f %.0f ', now_us, ttl_ms) .. proclaimed)
return 1
