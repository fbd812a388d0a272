-- mailboxes/unread: how many messages a fetch would find.
--
-- KEYS  messages unread claims claimed dropped
-- ARGV  max_age_ms  integer > 0, or 0 for messages of any age
-- RETURNS  how many
-- TWICE    the same; what lapsed claims hold has been put back
-- COST     O(log N + M), N messages, M of lapsed claims
-- @include server_time
-- @include return_lapsed
-- @include min_score
local now_us = server_time()
return_lapsed(messages, unread, claims, claimed, dropped, math.floor(now_us / 1000))
return redis.call('ZCOUNT', unread, min_score(now_us, max_age_ms), '+inf')
