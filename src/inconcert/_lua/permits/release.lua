-- permits/release: give a permit back, or leave the line, and hand what is free to the first in line.
--
-- KEYS[1]  holders  zset    holder -> lease end, server ms; at .5 until one that was handed over is extended
-- KEYS[2]  waiters  zset    'limit:handoff_ms:ttl_ms holder' -> ticket
-- KEYS[3]  fence    string  last fencing token
-- ARGV[1]  holder   string  'session.number'
-- ARGV[2]  inboxes  what the channel of each session's inbox begins with
-- ARGV[3]  place    'limit:handoff_ms:ttl_ms holder' of a holder that was in line, or may still be; '' of one that never was
-- RETURNS  {held} nobody waits | {held, retry_ms, now_ms, 0, 0, grant, ...}: 1 if it was held, and as in acquire
-- TWICE    {0, ...}: it is not held any more; the line is served as far as permits are free
-- COST     O(log N), N holders and waiters
local holders, waiters, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, inboxes, place = ARGV[1], ARGV[2], ARGV[3]
local held = redis.call('ZREM', holders, holder)  -- first: it frees memory, so a full server lets the rest pass
if place ~= '' then
  redis.call('ZREM', waiters, place)
end
if redis.call('EXISTS', waiters) == 0 then
  return {held}
end
-- @include server_time
-- @include drop_lapsed
-- @include drop_places
-- @include serve_line
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local home = string.match(holder, '^(.*)%.')
drop_places(waiters, drop_lapsed(holders, now_ms), home)
local answer = serve_line(holders, waiters, fence, inboxes, home, now_us)
return {held, answer[1], now_ms, 0, 0, unpack(answer, 2)}
