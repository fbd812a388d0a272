-- chat_lists/read: the chats of a user.
--
-- KEYS[1]  chats  zset  chat -> how many joins it had when the user was a member
-- ARGV[1]  start  integer >= 0, how many to skip
-- RETURNS  chats, at most 10,000
-- TWICE    the same; nothing is changed
-- COST     O(log N + M), N chats of the user, M of them answered
return redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[1] + 9999)
