-- chat/list: the chats of a user, and those in which not all is read, with the last message read of each.
--
-- KEYS[1]  chats  set  'CHAT ID' of the last message read in each chat
-- KEYS[2]  heads  set  'CHAT ID' of the latest message of each chat
-- RETURNS  {{'CHAT ID', ...}, {'CHAT ID', ...}}: all, and those of them with news
-- TWICE    the same; nothing is changed
-- COST     O(N), N chats of the user here
return {redis.call('SMEMBERS', KEYS[1]), redis.call('SDIFF', KEYS[1], KEYS[2])}
