-- chat/join: become a member who has read all that was sent so far, by oneself or added by a member.
--
-- KEYS  members state chats recent older
--       chats: set  'CHAT ID' of the last message read in each chat, of this user
-- ARGV  chat     string, its id
-- ARGV  user     string
-- ARGV  request  string, unique to this call
-- ARGV  by       string, the member who adds the user; empty if they join by themselves
-- ARGV  channel  channel that announces changes of the user's list
-- RETURNS  {1} a member, now or before | {0, by} not a member | {-1, user} no such chat
-- TWICE    the same, and nothing is changed, even if the user has left in between
-- COST     O(log N), N members
-- @include not_a_member
-- @include recall
-- @include remember
-- @include publish
if recall(recent, older, request) then
  return {1}
end
local last = redis.call('HGET', state, 'last')
if not last then
  return {-1, user}
end
if by ~= '' and not redis.call('ZSCORE', members, by) then
  return not_a_member(members, by)
end
redis.call('SISMEMBER', chats, chat)  -- a key that is not a set fails here, before anything is changed
if not redis.call('ZSCORE', members, user) then
  -- First what may be refused, before anything is changed: by a user's rights, and by a full server.
  publish(channel, chat)  -- a hint, which does no harm if nothing comes of it
  redis.call('ZADD', members, last, user)
  redis.call('SADD', chats, chat .. ' ' .. last)
  redis.call('HSET', state, '^' .. user, last)
end
remember(recent, older, request, 1)
return {1}
