-- permits/downgrade: turn an exclusive holder into a shared one.
--
-- KEYS[1]  holders  zset    holder -> lease end, server ms; its fraction: see hold and serve_line
-- KEYS[2]  waiters  zset    'limit:handoff_ms:ttl_ms holder' -> ticket
-- KEYS[3]  fence    string  last fencing token; ' lost' after it: see mark_lost
-- ARGV[1]  holder   string  'session.number', its mark included
-- ARGV[2]  inboxes  prefix of each session's inbox channel
-- ARGV[3]  heir     string  'session.number', its new name, for the rest of its lease
-- RETURNS  {held} no waiters | {held, retry_ms, grant, ...}: 1 if the heir holds now; the rest as in acquire
-- TWICE    the same; the line is served as far as permits are free
-- COST     O(log N), N holders and waiters
-- @include server_time
-- @include drop_lapsed
-- @include drop_places
-- @include serve_line
local holders, waiters, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, inboxes, heir = ARGV[1], ARGV[2], ARGV[3]
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
  return {held}
end
local answer = serve_line(holders, waiters, fence, inboxes, home, now_us)
return {held, unpack(answer)}
