-- permits/downgrade: let others hold beside one who had to be alone.
--
-- KEYS[1]  holders  zset    holder -> lease end, server ms; at .5 until one that was handed over is extended
-- KEYS[2]  waiters  zset    'limit:handoff_ms:ttl_ms holder' -> ticket
-- KEYS[3]  fence    string  last fencing token
-- ARGV[1]  holder   string  'session.number', its mark included
-- ARGV[2]  inboxes  what the channel of each session's inbox begins with
-- ARGV[3]  heir     string  'session.number', under which it goes on, for as long as its lease had left
-- RETURNS  {held} nobody waits | {held, retry_ms, now_ms, 0, 0, grant, ...}: 1 if the heir holds now, and as in acquire
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
drop_places(waiters, drop_lapsed(holders, now_ms), home)
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
return {held, answer[1], now_ms, 0, 0, unpack(answer, 2)}
