-- chat/history: the messages before one, read or not.
--
-- KEYS  members state messages
-- ARGV  user    string, who must be a member
-- ARGV  before  number, id of the first message that is not wanted, or 0 for the latest ones
-- ARGV  count   number 1 to 1000, how many are wanted
-- RETURNS  {1, before, first, message, ...}: with the id of the first message here; some of the latest are missing if
--          they have more than 1 MiB | {0, user} not a member | {-1, user} no such chat
-- TWICE    the same; nothing is changed but that messages over age are dropped
-- COST     O(log N + M), N members and messages, M messages answered
-- @include server_time
-- @include not_a_member
-- @include drop_old
-- @include add_messages
-- @include if_small
if not redis.call('ZSCORE', members, user) then
  return not_a_member(members, user)
end
local last, max_age_ms = unpack(redis.call('HMGET', state, 'last', 'max_age_ms'))
if max_age_ms ~= '0' then
  drop_old(messages, math.floor(server_time() / 1000) - max_age_ms)
end
local beyond = last + 1
local oldest = beyond - redis.call('LLEN', messages)
if before == 0 or before > beyond then
  before = beyond
end
local first = math.max(oldest, before - count)
return if_small(add_messages({1, before, first}, messages, first - oldest, before - first))
