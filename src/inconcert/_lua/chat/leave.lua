-- chat/leave: be a member no more; the last one takes the chat along.
--
-- KEYS[1]  members   zset  user -> id of the last message read
-- KEYS[2]  state     hash  last: id of the latest message; joins: how many there were
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER', the latest has the id `last`
-- KEYS[4]  recent    hash  request -> its answer, 120 s
-- KEYS[5]  older     hash  the same, from before; at most 120 s
-- ARGV[1]  user      string
-- ARGV[2]  request   string, unique to this call
-- RETURNS  {1, joins} left | {0, joins} was not a member | {-1, ...} no such chat
-- TWICE    the same, and nothing is changed, even if the user has joined in between; {-1, ...} if the chat has gone
-- COST     O(log N + M), N members, M messages dropped
-- @include not_a_member
-- @include recall
-- @include remember
-- @include drop_read
local members, state, messages, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local user, request = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return {1, tonumber(answer)}
end
-- First what frees memory: after it a full server lets the rest pass.
if redis.call('ZREM', members, user) == 0 then
  return not_a_member(members, state)
end
local lowest = redis.call('ZRANGE', members, 0, 0, 'WITHSCORES')
if #lowest == 0 then
  redis.call('UNLINK', members, state, messages, recent, older)
  return {1, not_a_member(members, state)[2]}
end
local last, joins = unpack(redis.call('HMGET', state, 'last', 'joins'))
drop_read(messages, tonumber(last), tonumber(lowest[2]))
remember(recent, older, request, joins)
return {1, tonumber(joins)}
