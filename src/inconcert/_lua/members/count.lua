-- members/count: how many are in the group.
--
-- KEYS  members
-- RETURNS  how many, without those whose lease has lapsed
-- TWICE    the same
-- COST     O(log N), N members
-- @include server_time
return redis.call('ZCOUNT', members, string.format('(%.0f', math.floor(server_time() / 1000)), '+inf')
