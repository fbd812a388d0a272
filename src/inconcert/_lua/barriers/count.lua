-- barriers/count: how many take part in the open round.
--
-- KEYS  participants
-- RETURNS  how many have a lease that has not lapsed
-- TWICE    the same; nothing is changed
-- COST     O(log N), N participants
-- @include server_time
return redis.call('ZCOUNT', participants, '(' .. math.floor(server_time() / 1000), '+inf')
