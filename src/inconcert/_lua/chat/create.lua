-- chat/create: make a chat with its members and its first message.
--
-- KEYS  members state messages heads recent older chats..
--       chats: set  'CHAT ID' of the last message read in each chat; of each user, in their order; permanent
-- ARGV  chat          string, its id, which nobody has used
-- ARGV  max_messages  integer > 0
-- ARGV  max_age_ms    integer > 0, or 0 to keep messages of any age
-- ARGV  history       integer >= 0, how many messages are kept when all have read them
-- ARGV  body          JSON, without a raw newline
-- ARGV  listeners     what the channel of a user begins with; the name follows
-- ARGV  users..       the sender, then the other members
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if all members have left in between
-- COST     O(N log N), N members
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local sender = ARGV[USERS]
if redis.call('EXISTS', members) == 1 or recall(recent, older, chat) then
  return 1
end
for i = USERS, #ARGV do  -- hints, which do no harm if nothing comes of them; a user who may not give them changes nothing
  publish(listeners .. ARGV[i], chat)
end
redis.call('SADD', heads, chat .. ' 1')  -- a full server refuses here, before anything is changed
for i = CHATS, #KEYS do
  local done = redis.pcall('SADD', KEYS[i], chat .. ' 0')
  if done ~= 1 then  -- the key is not a set: nothing must be half created
    for j = CHATS, i - 1 do
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
for i = USERS, #ARGV, 1000 do
  local rows = {}
  for j = i, math.min(i + 999, #ARGV) do
    rows[#rows + 1] = 0
    rows[#rows + 1] = ARGV[j]
  end
  redis.call('ZADD', members, unpack(rows))
end
return 1
