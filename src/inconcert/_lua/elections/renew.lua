-- elections/renew: make a term last longer, if its lease has not lapsed, and proclaim it if not yet done.
--
-- KEYS[1]  holders    zset    holder -> lease end, server ms
-- KEYS[2]  record     string  'HOLDER NUMBER SINCE_MS CANDIDATE' of the term proclaimed last; until its lease ends
-- ARGV[1]  holder     string  'session.number'
-- ARGV[2]  ttl_ms     integer > 0
-- ARGV[3]  number     integer, the term's
-- ARGV[4]  candidate  string
-- ARGV[5]  changes    channel of the watchers, which receive what elections/record answers
-- RETURNS  1 renewed | 0 not held, or lapsed
-- TWICE    the same, counted from the second run; it is proclaimed once
-- COST     O(log N + W), N holders, W processes that watch
-- @include server_time
-- @include keep_lease
-- @include remembered_ms
-- @include publish
local holders, record = KEYS[1], KEYS[2]
local holder, ttl_ms, number, candidate, changes = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
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
