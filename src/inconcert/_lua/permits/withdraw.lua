-- permits/withdraw: leave the line, or give back what was granted meanwhile.
--
-- KEYS[1]  holders     zset    holder -> lease end, server ms
-- KEYS[2]  waiters     zset    'limit:handoff_ms:holder' -> ticket
-- KEYS[3]  fence       string  last fencing token
-- ARGV[1]  holder      string  'session.number'
-- ARGV[2]  limit       integer > 0, as it was acquired with
-- ARGV[3]  handoff_ms  integer > 0, as it was acquired with
-- ARGV[4]  inboxes     what the channel of each session's inbox begins with
-- RETURNS  {held} nobody waits | {held, retry_ms, now_ms, 0, 0, grant, ...}: 1 if it had been granted, and as in acquire
-- TWICE    {0, ...}: there is nothing to leave any more; the line is served as far as permits are free
-- COST     O(log N), N holders and waiters
local holders, waiters, fence = KEYS[1], KEYS[2], KEYS[3]
local holder, limit, handoff_ms, inboxes = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local held = redis.call('ZREM', holders, holder)
redis.call('ZREM', waiters, limit .. ':' .. handoff_ms .. ':' .. holder)
if redis.call('EXISTS', waiters) == 0 then
  return {held}
end
-- @include server_time
-- @include next_token
-- @include outlive
-- @include drop_lapsed
-- @include serve_line
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
drop_lapsed(holders, now_ms)
local answer = serve_line(holders, waiters, fence, inboxes, string.match(holder, '^(.*)%.'), now_us)
return {held, answer[1], now_ms, 0, 0, unpack(answer, 2)}
