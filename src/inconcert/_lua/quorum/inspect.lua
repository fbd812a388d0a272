-- quorum/inspect: who has the lock on this server.
--
-- KEYS[1]  holder  string  who has it here; it ends with the lease
-- RETURNS  the holder | '' nobody
-- TWICE    the same; nothing is changed
-- COST     O(1)
return redis.call('GET', KEYS[1]) or ''
