-- chat/ack: move a member's read position forward, and drop what all have read.
--
-- KEYS  members state messages chats
--       chats: set  'CHAT ID' of the last message read in each chat, of this user
-- ARGV  chat  string, its id
-- ARGV  user  string
-- ARGV  id    number > 0, of the last message read; beyond the latest it means the latest
-- RETURNS  {1, position} | {0, user} not a member | {-1, user} no such chat
-- TWICE    the same; a position never goes back
-- COST     O(log N + M), N members, M messages dropped
-- @include not_a_member
-- @include drop_read
local position = tonumber(redis.call('ZSCORE', members, user))
if not position then
  return not_a_member(members, user)
end
local last, history = unpack(redis.call('HMGET', state, 'last', 'history'))
last = tonumber(last)
local read = math.min(id, last)
if read <= position then
  return {1, position}
end
-- Dropping comes first, because a full server allows it: up to the lower of this new position and the lowest other one.
local read_by_all = read
local lowest = redis.call('ZRANGE', members, 0, 1, 'WITHSCORES')
for i = 1, #lowest, 2 do
  if lowest[i] ~= user then
    read_by_all = math.min(read_by_all, tonumber(lowest[i + 1]))
  end
end
drop_read(messages, last, read_by_all, tonumber(history))
local now = string.format('%.0f', read)
redis.call('ZADD', members, 'XX', now, user)
redis.call('SREM', chats, chat .. ' ' .. string.format('%.0f', position))
redis.call('SADD', chats, chat .. ' ' .. now)
return {1, read}
