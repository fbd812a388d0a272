-- chat/ack: move a member's read position forward, and drop what all have read.
--
-- KEYS[1]  members   zset  user -> id of the last message read
-- KEYS[2]  state     hash  last: id of the latest message; joins
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER', the latest has the id `last`
-- ARGV[1]  user      string
-- ARGV[2]  id        integer > 0, of the last message read; beyond the latest it means the latest
-- RETURNS  {1, position} | {0, ...} not a member | {-1, ...} no such chat
-- TWICE    the same; a position never goes back
-- COST     O(log N + M), N members, M messages dropped
-- @include not_a_member
-- @include drop_read
local members, state, messages = KEYS[1], KEYS[2], KEYS[3]
local user, id = ARGV[1], tonumber(ARGV[2])
local position = redis.call('ZSCORE', members, user)
if not position then
  return not_a_member(members, state)
end
local last = tonumber(redis.call('HGET', state, 'last'))
local read = math.min(id, last)
if read <= tonumber(position) then
  return {1, tonumber(position)}
end
-- Dropping comes first, for a full server allows that: up to the lower of this new position and the lowest other one.
local read_by_all = read
local lowest = redis.call('ZRANGE', members, 0, 1, 'WITHSCORES')
for i = 1, #lowest, 2 do
  if lowest[i] ~= user then
    read_by_all = math.min(read_by_all, tonumber(lowest[i + 1]))
  end
end
drop_read(messages, last, read_by_all)
redis.call('ZADD', members, 'XX', string.format('%.0f', read), user)
return {1, read}
