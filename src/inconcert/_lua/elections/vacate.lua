-- elections/vacate: remove the record of a released term, and notify watchers unless another already leads.
--
-- KEYS  holders record
--       record: string  'HOLDER NUMBER SINCE_MS CANDIDATE' of the term proclaimed last; until its lease ends
-- ARGV  holder   string  'session.number', whose lease has been released
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
if redis.call('ZCOUNT', holders, '(' .. math.floor(now_us / 1000), '+inf') == 0 then
  publish(changes, string.format('%.0f 0 ', now_us))
end
return 1
