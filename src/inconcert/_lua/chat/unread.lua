-- chat/unread: count what a member has not read, without their own messages.
--
-- KEYS  members state messages
-- ARGV  user   string
-- ARGV  after  number, id after which to count, or -1 for the read position
-- RETURNS  {1, count, after}: the rest must be counted after this id, or -1 if that was all; what was dropped counts too
--          | {0, user} not a member | {-1, user} no such chat
-- TWICE    the same; nothing is changed
-- COST     O(log N), N members; and O(M) if the user sent one of them, M messages up to that, 1000 at a time
-- @include not_a_member
-- @include add_messages
local position = tonumber(redis.call('ZSCORE', members, user))
if not position then
  return not_a_member(members, user)
end
after = math.max(after, position)
local last, own = unpack(redis.call('HMGET', state, 'last', '@' .. user))
last, own = tonumber(last), tonumber(own) or 0
if own <= after then
  return {1, last - after, -1}
end
-- Look at each up to the last that is the user's own.
local oldest = last - redis.call('LLEN', messages) + 1
local first = math.max(oldest, after + 1)
local count = first - after - 1
local texts = add_messages({}, messages, first - oldest, math.min(1000, own - first + 1))
for _, text in ipairs(texts) do
  local _, body_at = string.find(text, '\n', 1, true)
  local _, sender_at = string.find(text, '\n', body_at + 1, true)
  if string.sub(text, sender_at + 1) ~= user then
    count = count + 1
  end
end
after = first + #texts - 1
if after < own then
  return {1, count, after}
end
return {1, count + last - after, -1}
