-- chat/create: make a chat with its members and its first message, for a minute; chat/keep makes it stay.
--
-- KEYS[1]  members   zset  user -> id of the last message read; permanent once kept
-- KEYS[2]  state     hash  last: id, at: time of the latest message; joins: how many there were; max_messages, max_age_ms;
--                          permanent once kept
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER', the latest has the id `last`; permanent, or max_age_ms
-- ARGV[1]  max_messages  integer > 0
-- ARGV[2]  max_age_ms    integer > 0, or 0 to keep messages of any age
-- ARGV[3]  body          JSON, in which there is no raw newline
-- ARGV[4..]  users       the sender, then the other members
-- RETURNS  1
-- TWICE    the same, and nothing is changed; if all members have left, an empty shell that lapses after a minute
-- COST     O(N log N), N members
-- @include server_time
local members, state, messages = KEYS[1], KEYS[2], KEYS[3]
local max_messages, max_age_ms, body, sender = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if redis.call('EXISTS', members) == 1 then
  return 1
end
local at = string.format('%.0f', math.floor(server_time() / 1000))
redis.call('RPUSH', messages, at .. '\n' .. body .. '\n' .. sender)
redis.call('HSET', state, 'last', 1, 'at', at, 'joins', 1, 'max_messages', max_messages, 'max_age_ms', max_age_ms)
for i = 4, #ARGV do
  redis.call('ZADD', members, 0, ARGV[i])
end
redis.call('PEXPIRE', members, 60000)
redis.call('PEXPIRE', state, 60000)
redis.call('PEXPIRE', messages, 60000)
return 1
