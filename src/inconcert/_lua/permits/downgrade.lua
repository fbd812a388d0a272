-- permits/downgrade: turn an exclusive holder into a shared one.
--
-- KEYS  holders waiters fence
-- ARGV  holder   string  'session.number', its mark included
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  heir     string  'session.number', its new name, for the rest of its lease
-- RETURNS  held: no waiters | {held, retry_ms, grant, ...}: 1 if the heir holds now; the rest as in acquire
-- TWICE    the same; the line is served as far as permits are free
-- COST     O(log N), N holders and waiters
-- @include server_time
-- @include drop_lapsed
-- @include drop_places
-- @include serve_line
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local home = string.match(holder, '^(.*)%.')
drop_places(waiters, drop_lapsed(holders, fence, now_ms), home)
local ends = redis.call('ZSCORE', holders, holder)
if ends then
  redis.call('ZADD', holders, math.floor(ends), heir)
  redis.call('ZREM', holders, holder)
end
local held = redis.call('ZSCORE', holders, heir) and 1 or 0
if redis.call('EXISTS', waiters) == 0 then
  return held
end
local answer = serve_line(holders, waiters, fence, inboxes, home, now_us)
return {held, unpack(answer)}
