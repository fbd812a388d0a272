-- mailboxes/unread: how many messages a fetch would find.
--
-- KEYS[1]  messages    hash    id -> 'LAPSES BODY'
-- KEYS[2]  unread      zset    id -> id, which is the server's time in us
-- KEYS[3]  claims      zset    claim -> lease end, server ms
-- KEYS[4]  claimed     hash    claim -> 'MISSED ID ID ...'
-- KEYS[5]  dropped     string  how many were dropped unread and not yet reported
-- ARGV[1]  max_age_ms  integer > 0, or 0 for messages of any age
-- RETURNS  how many
-- TWICE    the same; what lapsed claims hold has been put back
-- COST     O(log N + M), N messages, M of lapsed claims
-- @include server_time
-- @include return_lapsed
-- @include min_score
local messages, unread, claims, claimed, dropped = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_us = server_time()
return_lapsed(messages, unread, claims, claimed, dropped, math.floor(now_us / 1000))
return redis.call('ZCOUNT', unread, min_score(now_us, ARGV[1]), '+inf')
