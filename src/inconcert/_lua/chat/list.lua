-- chat/list: the chats of a user, and those in which not all is read, with the last message read of each.
--
-- KEYS  chats heads
-- RETURNS  {{'CHAT ID', ...}, {'CHAT ID', ...}}: all, and those of them with news
-- TWICE    the same; nothing is changed
-- COST     O(N), N chats of the user here
return {redis.call('SMEMBERS', chats), redis.call('SDIFF', chats, heads)}
