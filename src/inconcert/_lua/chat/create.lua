-- chat/create: make a chat with its members and its first message.
--
-- KEYS[1]  members   zset  user -> id of the last message read; permanent
-- KEYS[2]  state     hash  last: id, at: time of the latest message; max_messages, max_age_ms, history; permanent
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER', the latest has the id `last`; permanent, or max_age_ms
-- KEYS[4]  heads     set   'CHAT ID' of the latest message of each chat; permanent
-- KEYS[5]  recent    hash  request -> its answer, 120 s
-- KEYS[6]  older     hash  the same, from before; at most 120 s
-- KEYS[7..]  chats   set   'CHAT ID' of the last message read in each chat; of each user, in their order; permanent
-- ARGV[1]  chat          string, its id, which nobody has used
-- ARGV[2]  max_messages  integer > 0
-- ARGV[3]  max_age_ms    integer > 0, or 0 to keep messages of any age
-- ARGV[4]  history       integer >= 0, how many messages are kept when all have read them
-- ARGV[5]  body          JSON, without a raw newline
-- ARGV[6]  listeners     what the channel of a user begins with; the name follows
-- ARGV[7..]  users       the sender, then the other members
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if all members have left in between
-- COST     O(N log N), N members
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local members, state, messages, heads, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local chat, max_messages, max_age_ms, history = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local body, listeners, sender = ARGV[5], ARGV[6], ARGV[7]
if redis.call('EXISTS', members) == 1 or recall(recent, older, chat) then
  return 1
end
for i = 7, #ARGV do  -- hints, which do no harm if nothing comes of them; a user who may not give them changes nothing
  publish(listeners .. ARGV[i], chat)
end
redis.call('SADD', heads, chat .. ' 1')  -- a full server refuses here, before anything is changed
for i = 7, #KEYS do
  local done = redis.pcall('SADD', KEYS[i], chat .. ' 0')
  if done ~= 1 then  -- the key is not a set: nothing must be half created
    for j = 7, i - 1 do
      redis.call('SREM', KEYS[j], chat .. ' 0')
    end
    redis.call('SREM', heads, chat .. ' 1')
    return done
  end
end
remember(recent, older, chat, 1)
local at = string.format('%.0f', math.floor(server_time() / 1000))
redis.call('RPUSH', messages, at .. '\n' .. body .. '\n' .. sender)
if max_age_ms ~= '0' then
  redis.call('PEXPIRE', messages, max_age_ms)
end
redis.call('HSET', state, 'last', 1, 'at', at, '@' .. sender, 1,
  'max_messages', max_messages, 'max_age_ms', max_age_ms, 'history', history)
for i = 7, #ARGV, 1000 do
  local rows = {}
  for j = i, math.min(i + 999, #ARGV) do
    rows[#rows + 1] = 0
    rows[#rows + 1] = ARGV[j]
  end
  redis.call('ZADD', members, unpack(rows))
end
return 1
