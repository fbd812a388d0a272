-- chat/fetch: the messages after a member's read position, which stays where it is.
--
-- KEYS  members state messages
-- ARGV  user   string
-- ARGV  after  number, id after which to begin; -1, or one that does not exist yet, means the read position
-- ARGV  count  number 1 to 1000, the most messages to answer; fewer if they have 1 MiB
-- RETURNS  {1, missed, first, last, message, ...}: how many were dropped before the user read them, the id of the first
--          message here, and the latest id | {0, user} not a member | {-1, user} no such chat
-- TWICE    the same; nothing is changed but that messages over age are dropped
-- COST     O(log N + M), N members and messages, M messages answered
-- @include server_time
-- @include not_a_member
-- @include drop_old
-- @include add_messages
-- @include if_small
local position = tonumber(redis.call('ZSCORE', members, user))
if not position then
  return not_a_member(members, user)
end
local last, max_age_ms, joined = unpack(redis.call('HMGET', state, 'last', 'max_age_ms', '^' .. user))
last = tonumber(last)
if after < 0 or after > last then  -- beyond the latest if the server has lost some, and gives their ids again
  after = position
else
  after = math.max(after, tonumber(joined) or 0)  -- a listener may have left and joined again
end
if after >= last then
  return {1, 0, last + 1, last}
end

if max_age_ms ~= '0' then
  drop_old(messages, math.floor(server_time() / 1000) - max_age_ms)
end
local oldest = last - redis.call('LLEN', messages) + 1
local first = math.max(oldest, after + 1)
-- What the user has read elsewhere was not missed.
local missed = math.max(0, first - 1 - math.max(after, position))
return if_small(add_messages({1, missed, first, last}, messages, first - oldest, math.min(count, last - first + 1)))
