-- mailboxes/ack: drop messages that have been handled, even if another fetch has claimed them by now.
--
-- KEYS[1]  messages  hash  id -> 'LAPSES BODY'
-- KEYS[2]  unread    zset  id -> id
-- KEYS[3]  claims    zset  claim -> lease end, server ms
-- KEYS[4]  claimed   hash  claim -> 'MISSED ID ID ...'
-- KEYS[5]  recent    hash  fetch that is over -> 1, 120 s
-- KEYS[6]  older     hash  the same, from before; at most 120 s
-- ARGV[1]  claim     the one under which they were fetched
-- ARGV[2..]  ids     1 to 1,000 of them
-- RETURNS  how many were still there
-- TWICE    0; nothing is changed
-- COST     O(M log N), M messages claimed, N there
-- @include remember
local messages, unread, claims, claimed, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local claim = ARGV[1]
local content = redis.call('HGET', claimed, claim)
-- First what frees memory: a full server allows it, and then lets the rest pass.
local count = redis.call('HDEL', messages, unpack(ARGV, 2))
remember(recent, older, claim, 1)
if not content then
  redis.call('ZREM', unread, unpack(ARGV, 2))  -- the claim has lapsed
  return count
end
local is_done, left = {}, {'0'}  -- nothing was missed that its claimer was not told of
for i = 2, #ARGV do
  is_done[ARGV[i]] = true
end
for id in string.gmatch(content, ' (%d+)') do
  if not is_done[id] then
    left[#left + 1] = id
  end
end
if #left > 1 then
  redis.call('HSET', claimed, claim, table.concat(left, ' '))
else
  redis.call('HDEL', claimed, claim)
  redis.call('ZREM', claims, claim)
end
return count
