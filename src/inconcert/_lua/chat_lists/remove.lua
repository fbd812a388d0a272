-- chat_lists/remove: take a chat off a user's list, unless the user joined it anew since.
--
-- KEYS[1]  chats    zset  chat -> how many joins it had when the user was a member
-- ARGV[1]  chat     string, its id
-- ARGV[2]  joins    integer > 0, how many the chat had when the user was no member
-- RETURNS  1 taken off | 0 not there, or joined anew
-- TWICE    0, and nothing is changed
-- COST     O(log N), N chats of the user
local known = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not known or tonumber(known) > tonumber(ARGV[2]) then
  return 0
end
return redis.call('ZREM', KEYS[1], ARGV[1])
