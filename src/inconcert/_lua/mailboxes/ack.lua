-- mailboxes/ack: drop messages that have been handled, even if another fetch has claimed them by now.
--
-- KEYS  messages unread claims claimed recent older
-- ARGV  claim  the one under which they were fetched
-- ARGV  ids..  1 to 1,000 of them
-- RETURNS  how many were still there
-- TWICE    0; nothing is changed
-- COST     O(M log N), M messages claimed, N there
-- @include remember
local content = redis.call('HGET', claimed, claim)
-- First what frees memory: a full server allows it, and then lets the rest pass.
local count = redis.call('HDEL', messages, unpack(ARGV, IDS))
remember(recent, older, claim, 1)
if not content then
  redis.call('ZREM', unread, unpack(ARGV, IDS))  -- the claim has lapsed
  return count
end
local is_done, left = {}, {'0'}  -- nothing was missed that its claimer was not told of
for i = IDS, #ARGV do
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
