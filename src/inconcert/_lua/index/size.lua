-- index/size: how many documents there are.
--
-- KEYS[1]  documents  hash  document -> its words in their order: ' red apples '
-- RETURNS  integer
-- TWICE    the same; nothing is changed
-- COST     O(1)
return redis.call('HLEN', KEYS[1])
