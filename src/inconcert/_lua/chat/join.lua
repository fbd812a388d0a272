-- chat/join: become a member who has read all that was sent so far.
--
-- KEYS[1]  members   zset  user -> id of the last message read
-- KEYS[2]  state     hash  last: id of the latest message; joins: how many there were
-- KEYS[3]  messages  list  not looked at; here for the sake of the numbers
-- KEYS[4]  recent    hash  request -> its answer, 120 s
-- KEYS[5]  older     hash  the same, from before; at most 120 s
-- ARGV[1]  user      string
-- ARGV[2]  request   string, unique to this call
-- RETURNS  {1, joins} a member, now or before | {-1, ...} no such chat
-- TWICE    the same, and nothing is changed, even if the user has left in between
-- COST     O(log N), N members
-- @include not_a_member
-- @include recall
-- @include remember
local members, state, _, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local user, request = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return {1, tonumber(answer)}
end
local last, joins = unpack(redis.call('HMGET', state, 'last', 'joins'))
if not last then
  return not_a_member(members, state)
end
-- First the members: a full server refuses here, before anything is changed.
if redis.call('ZADD', members, 'NX', last, user) == 1 then
  joins = redis.call('HINCRBY', state, 'joins', 1)
end
remember(recent, older, request, joins)
return {1, tonumber(joins)}
