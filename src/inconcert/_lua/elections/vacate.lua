-- elections/vacate: remove the record of a released term, and notify watchers unless another already leads.
--
-- KEYS  holders record
--       record: string  'HOLDER NUMBER SINCE_MS CANDIDATE' of the term proclaimed last; until its lease ends
-- ARGV  holder   string  'session.number', whose lease has been released, or is about to be
-- ARGV  changes  channel of the watchers, which receive what elections/record answers
-- RETURNS  1 removed | 0 another's record is there, or none
-- TWICE    0, and nothing is changed
-- COST     O(log N + W), N holders, W processes that watch
-- @include server_time
-- @include publish
local proclaimed = redis.call('GET', record)
if not proclaimed or string.match(proclaimed, '^%S+') ~= holder then
  return 0
end
redis.call('DEL', record)
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local leaders = redis.call('ZCOUNT', holders, '(' .. now_ms, '+inf')
if leaders == 1 and tonumber(redis.call('ZSCORE', holders, holder) or 0) > now_ms then
  leaders = 0  -- its release comes behind: the server had forgotten that script
end
if leaders == 0 then
  publish(changes, string.format('%.0f 0 ', now_us))
end
return 1
