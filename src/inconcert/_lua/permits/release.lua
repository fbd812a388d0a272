-- permits/release: release a permit, or leave the line, and hand free permits to the first in line.
--
-- KEYS[1]  holders  zset    holder -> lease end, server ms; at .5 if handed over and not yet extended
-- KEYS[2]  waiters  zset    'limit:handoff_ms:ttl_ms holder' -> ticket
-- KEYS[3]  fence    string  last fencing token
-- ARGV[1]  holder   string  'session.number'
-- ARGV[2]  inboxes  prefix of each session's inbox channel
-- ARGV[3]  place    'limit:handoff_ms:ttl_ms holder' of a holder that is or was in line; '' if it never was
-- RETURNS  {held} no waiters | {held, retry_ms, grant, ...}: 1 if it was held; the rest as in acquire
-- TWICE    {0, ...}: it is no longer held; the line is served as far as permits are free
-- COST     O(log N), N holders and waiters
-- @include drop_holder
local holders, waiters, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, inboxes, place = ARGV[1], ARGV[2], ARGV[3]
local held = drop_holder(holders, holder)  -- first: it frees memory, so a full server accepts the rest
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
return {held, unpack(answer)}
