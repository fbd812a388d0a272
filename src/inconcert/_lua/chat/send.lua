-- chat/send: append a message and draw its id.
--
-- KEYS[1]  members   zset  user -> id of the last message read
-- KEYS[2]  state     hash  last: id, at: time of the latest message; @USER: id of the last message that a user sent; the caps
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER', the latest has the id `last`
-- KEYS[4]  heads     set   'CHAT ID' of the latest message of each chat
-- KEYS[5]  recent    hash  request -> its answer, 120 s
-- KEYS[6]  older     hash  the same, from before; at most 120 s
-- ARGV[1]  chat      string, its id
-- ARGV[2]  sender    string, who must be a member
-- ARGV[3]  request   string, unique to this message
-- ARGV[4]  body      JSON, without a raw newline
-- ARGV[5]  channel   channel that announces new messages of the chat
-- RETURNS  {1, 'ID AT_MS'} | {0, sender} the sender is not a member | {-1, sender} no such chat
-- TWICE    the same id and time, and nothing is added
-- COST     O(L), L processes that listen; and O(log N) with max_age_ms, N messages
-- @include server_time
-- @include not_a_member
-- @include recall
-- @include remember
-- @include drop_old
-- @include publish
local members, state, messages, heads = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local recent, older = KEYS[5], KEYS[6]
local chat, sender, request, body, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local answer = recall(recent, older, request)
if answer then
  return {1, answer}
end
if not redis.call('ZSCORE', members, sender) then
  return not_a_member(members, sender)
end

local last, last_at, max_messages, max_age_ms = unpack(
  redis.call('HMGET', state, 'last', 'at', 'max_messages', 'max_age_ms'))
local id = string.format('%.0f', last + 1)
local now_ms = math.max(math.floor(server_time() / 1000), tonumber(last_at))  -- the server's clock may have been set back
local at = string.format('%.0f', now_ms)
-- First what may be refused, before anything is changed: by a user's rights, and by a full server.
publish(channel, chat)  -- a hint, which does no harm if nothing comes of it
redis.call('SADD', heads, chat .. ' ' .. id)
local length = redis.call('RPUSH', messages, at .. '\n' .. body .. '\n' .. sender)
redis.call('SREM', heads, chat .. ' ' .. last)
redis.call('HSET', state, 'last', id, 'at', at, '@' .. sender, id)
answer = id .. ' ' .. at
remember(recent, older, request, answer)
if length > tonumber(max_messages) then
  redis.call('LTRIM', messages, -max_messages, -1)
end
if max_age_ms ~= '0' then
  drop_old(messages, now_ms - max_age_ms)
  redis.call('PEXPIRE', messages, max_age_ms)
end
return {1, answer}
