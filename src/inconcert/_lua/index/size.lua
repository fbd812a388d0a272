-- index/size: how many documents there are.
--
-- KEYS  documents
-- RETURNS  integer
-- TWICE    the same; nothing is changed
-- COST     O(1)
return redis.call('HLEN', documents)
