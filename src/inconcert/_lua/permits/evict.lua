-- permits/evict: take permits from their holders by force, and hand free permits to the first in line.
--
-- KEYS  holders waiters fence
-- ARGV  inboxes    prefix of each session's inbox channel
-- ARGV  evicted..  'session.number' of each holder, at most 1,000
-- RETURNS  {retry_ms, 1 or 0, ...}: 1 if the line is to be served again, as in acquire, 0 if nobody waits; then for each
--          whether it held a permit
-- TWICE    {..., 0, ...}: they hold none any more; the line is served as far as permits are free
-- COST     O(M log N), M holders given, N holders and waiters
-- @include server_time
-- @include drop_lapsed
-- @include drop_places
-- @include serve_line
-- @include drop_holder
-- @include mark_lost
local answer = {0}
for i = EVICTED, #ARGV do
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
