-- members/count: how many are in the group.
--
-- KEYS[1]  members  zset  member -> lease end, server ms
-- RETURNS  how many, without those whose lease has lapsed
-- TWICE    the same
-- COST     O(log N), N members
-- @include server_time
return redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', math.floor(server_time() / 1000)), '+inf')
