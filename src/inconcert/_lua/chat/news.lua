-- chat/news: the chats of a user in which not all is read, with the last message read of each.
--
-- KEYS  chats heads
-- RETURNS  {'CHAT ID', ...}
-- TWICE    the same; nothing is changed
-- COST     O(N), N chats of the user here
return redis.call('SDIFF', chats, heads)
