-- latches/inspect: how many were counted.
--
-- KEYS[1]  counted  string  how many were counted
-- RETURNS  the number; 0 if nothing was counted
-- TWICE    the same; nothing is changed
-- COST     O(1)
return tonumber(redis.call('GET', KEYS[1]) or 0)
