-- permits/release: release a permit, or leave the line, and hand free permits to the first in line.
--
-- KEYS  holders waiters fence
-- ARGV  holder     string  'session.number'
-- ARGV  inboxes    prefix of each session's inbox channel
-- ARGV  special..  nothing if it had one permit, was never in line, and is released in time | place, ended
--                  place: 'limit:handoff_ms:ttl_ms holder' of a holder that is or was in line; '' if it never was
--                  ended: '' in time | 'unused' never acted under | 'late' after its end, by the holder's clock | 'lost'
-- RETURNS  held: no waiters | {held, retry_ms, grant, ...}: 1 if it was held; the rest as in acquire
-- TWICE    0 in place of held: it is no longer; the line is served as far as permits are free
-- COST     O(log N), N holders and waiters
local place, ended = ARGV[SPECIAL], ARGV[SPECIAL + 1]
local is_wide = place and string.find(holder, 'x%d+$')
local ends = place and ended ~= '' and redis.call('ZSCORE', holders, holder)
local held = redis.call('ZREM', holders, holder)  -- first: it frees memory, so a full server accepts the rest
if place and place ~= '' then
  redis.call('ZREM', waiters, place)
end
if not (ends or is_wide) and redis.call('EXISTS', waiters) == 0 then
  return held  -- the usual case, before the functions of the others are made
end
-- @include drop_holder
-- @include server_time
-- @include follows_loss
-- @include mark_lost
if is_wide then
  drop_holder(holders, holder)
end
if ends then
  local has_lapsed = ended == 'late' and tonumber(ends) <= server_time() / 1000
  if has_lapsed or ended == 'lost' or ended == 'unused' and follows_loss(ends) then
    mark_lost(fence)
  end
  held = has_lapsed and 0 or held
end
if redis.call('EXISTS', waiters) == 0 then
  return held
end
-- @include drop_lapsed
-- @include drop_places
-- @include serve_line
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local home = string.match(holder, '^(.*)%.')
drop_places(waiters, drop_lapsed(holders, fence, now_ms), home)
local answer = serve_line(holders, waiters, fence, inboxes, home, now_us)
return {held, unpack(answer)}
