-- mailboxes/purge: drop all messages, those that are claimed too.
--
-- KEYS[1]  messages  hash    id -> 'LAPSES BODY'
-- KEYS[2]  unread    zset    id -> id
-- KEYS[3]  claims    zset    claim -> lease end, server ms
-- KEYS[4]  claimed   hash    claim -> 'MISSED ID ID ...'
-- KEYS[5]  dropped   string  how many were dropped unread that nobody was told of
-- RETURNS  how many there were
-- TWICE    0
-- COST     O(1); the server frees the memory in the background
local messages, unread, claims, claimed, dropped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local count = redis.call('HLEN', messages)
redis.call('HLEN', claimed)  -- a key that is not ours stops the script before it has changed anything
redis.call('ZCARD', unread)
redis.call('ZCARD', claims)
redis.call('GET', dropped)
redis.call('UNLINK', messages, unread, claims, claimed, dropped)
return count
