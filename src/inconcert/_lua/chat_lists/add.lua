-- chat_lists/add: put a chat on a user's list.
--
-- KEYS[1]  chats    zset  chat -> how many joins it had when the user was a member; permanent while not empty
-- ARGV[1]  chat     string, its id
-- ARGV[2]  joins    integer > 0, how many the chat had when the user was a member
-- RETURNS  1
-- TWICE    the same, and nothing is changed
-- COST     O(log N), N chats of the user
redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[1])
return 1
