-- chat/leave: stop being a member, by oneself or removed by a member; with the last one the chat is deleted.
--
-- KEYS  members state messages heads chats recent older
--       chats: set  'CHAT ID' of the last message read in each chat, of this user
-- ARGV  chat     string, its id
-- ARGV  user     string
-- ARGV  request  string, unique to this call
-- ARGV  by       string, the member who removes the user; empty if they leave by themselves
-- ARGV  channel  channel that announces changes of the user's list
-- RETURNS  {1} left | {0, user} one of the two is not a member | {-1, ...} no such chat
-- TWICE    the same, and nothing is changed, even if the user has joined in between, or the chat has gone
-- COST     O(log N + M), N members, M messages dropped
-- @include not_a_member
-- @include recall
-- @include remember
-- @include drop_read
-- @include publish
if recall(recent, older, request) then
  return {1}
end
if by ~= '' and not redis.call('ZSCORE', members, by) then
  return not_a_member(members, by)
end
local position = redis.call('ZSCORE', members, user)
if not position then
  return not_a_member(members, user)
end
publish(channel, chat)  -- before anything is changed: a user's rights may not allow it
-- First what frees memory: after it a full server lets the rest pass.
redis.call('ZREM', members, user)
redis.call('SREM', chats, chat .. ' ' .. position)
remember(recent, older, request, 1)
local last, history = unpack(redis.call('HMGET', state, 'last', 'history'))
local lowest = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')
if #lowest == 0 then
  redis.call('UNLINK', members, state, messages)
  redis.call('SREM', heads, chat .. ' ' .. last)
  return {1}
end
redis.call('HDEL', state, '^' .. user, '@' .. user)
drop_read(messages, tonumber(last), tonumber(lowest[2]), tonumber(history))
return {1}
