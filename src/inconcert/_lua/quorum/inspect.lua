-- quorum/inspect: the holder of the lock on this server.
--
-- KEYS[1]  holder  string  its holder here; the key ends with the lease
-- RETURNS  the holder | '' if it is free
-- TWICE    the same; nothing is changed
-- COST     O(1)
return redis.call('GET', KEYS[1]) or ''
