-- bells/ring: put a token on a bell: to return it, or to end the caller's own sleep.
--
-- KEYS[1]  bell  list  at most one token, for a minute
-- RETURNS  1
-- TWICE    1; there is one token, or one more if the first was taken meanwhile
-- COST     O(1)
-- @include ring
ring(KEYS[1])
return 1
