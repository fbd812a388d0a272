-- chat/send: append a message and draw its id.
--
-- KEYS  members state messages heads recent older
-- ARGV  chat     string, its id
-- ARGV  sender   string, who must be a member
-- ARGV  request  string, unique to this message
-- ARGV  body     JSON, without a raw newline
-- ARGV  channel  channel that announces new messages of the chat
-- RETURNS  {1, 'ID AT_MS'} | {0, sender} the sender is not a member | {-1, sender} no such chat
-- TWICE    the same id and time, and nothing is added
-- COST     O(L), L processes that listen; and O(log N) with max_age_ms, N messages
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local answer = recall(recent, older, request)
if answer then
  return {1, answer}
end
if not redis.call('ZSCORE', members, sender) then
  -- @block not_a_member
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
  -- @block drop_old
  drop_old(messages, now_ms - max_age_ms)
  redis.call('PEXPIRE', messages, max_age_ms)
end
return {1, answer}
