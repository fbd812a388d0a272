-- quorum/inspect: the holder of the lock on this server.
--
-- KEYS  holder
-- RETURNS  the holder | '' if it is free
-- TWICE    the same; nothing is changed
-- COST     O(1)
return redis.call('GET', holder) or ''
