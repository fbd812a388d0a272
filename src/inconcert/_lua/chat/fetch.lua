-- chat/fetch: the messages after a member's read position, which stays where it is.
--
-- KEYS[1]  members   zset  user -> id of the last message read
-- KEYS[2]  state     hash  last: id of the latest message; max_age_ms; joins
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER', the latest has the id `last`
-- ARGV[1]  user      string
-- ARGV[2]  after     id after which to begin, or -1 for the read position
-- ARGV[3]  count     integer 1 to 1000, the most messages to answer; fewer if they have 1 MiB
-- RETURNS  {1} nothing is new | {1, missed, first, last, message, ...}: how many were dropped before this member read
--          them, the id of the first message here, and the latest there is | {0, joins} not a member | {-1, ...} no such chat
-- TWICE    the same; nothing is changed but that messages over age are dropped
-- COST     O(log N + M), N members and messages, M messages answered
-- @include server_time
-- @include not_a_member
-- @include drop_old
local members, state, messages = KEYS[1], KEYS[2], KEYS[3]
local user, after, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local position = redis.call('ZSCORE', members, user)
if not position then
  return not_a_member(members, state)
end
if after < 0 then
  after = tonumber(position)
end
local last, max_age_ms = unpack(redis.call('HMGET', state, 'last', 'max_age_ms'))
last = tonumber(last)
if after >= last then
  return {1}
end

if max_age_ms ~= '0' then
  drop_old(messages, math.floor(server_time() / 1000) - max_age_ms)
end
local oldest = last - redis.call('LLEN', messages) + 1
local first = math.max(oldest, after + 1)
local answer = {1, first - after - 1, first, last}
local from, stop, step, bytes = first - oldest, first - oldest + count, 10, 0
while from < stop and bytes < 1048576 do
  local part = redis.call('LRANGE', messages, from, math.min(from + step, stop) - 1)
  for _, message in ipairs(part) do
    answer[#answer + 1] = message
    bytes = bytes + #message
  end
  if #part < step then
    break
  end
  from, step = from + step, step * 2
end
return answer
