-- latches/inspect: how many were counted.
--
-- KEYS  counted
-- RETURNS  the number; 0 if nothing was counted
-- TWICE    the same; nothing is changed
-- COST     O(1)
return tonumber(redis.call('GET', counted) or 0)
