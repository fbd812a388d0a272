-- permits/evict: take permits from their holders by force, and hand free permits to the first in line.
--
-- KEYS[1]   holders  zset    holder -> lease end, server ms; its fraction: see hold and serve_line
-- KEYS[2]   waiters  zset    'limit:handoff_ms:ttl_ms holder' -> ticket
-- KEYS[3]   fence    string  last fencing token; ' lost' after it: see mark_lost
-- ARGV[1]   inboxes  prefix of each session's inbox channel
-- ARGV[2..] evicted  'session.number' of each holder, at most 1,000
-- RETURNS   {retry_ms, 1 or 0, ...}: 1 if the line is to be served again, as in acquire, 0 if nobody waits; then for each
--           whether it held a permit
-- TWICE     {..., 0, ...}: they hold none any more; the line is served as far as permits are free
-- COST      O(M log N), M holders given, N holders and waiters
-- @include server_time
-- @include drop_lapsed
-- @include drop_places
-- @include serve_line
-- @include drop_holder
-- @include mark_lost
local holders, waiters, fence = KEYS[1], KEYS[2], KEYS[3]
local inboxes = ARGV[1]
local answer = {0}
for i = 2, #ARGV do
  answer[i] = drop_holder(holders, ARGV[i])
  if answer[i] == 1 then
    mark_lost(fence)
  end
end
if redis.call('EXISTS', waiters) == 1 then
  local now_us = server_time()
  drop_places(waiters, drop_lapsed(holders, fence, math.floor(now_us / 1000)), '')
  answer[1] = serve_line(holders, waiters, fence, inboxes, '', now_us)[1]
end
return answer
