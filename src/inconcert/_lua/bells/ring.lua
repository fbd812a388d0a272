-- bells/ring: wake a sleeper: to pass on what rang for a consumer that has gone, or to end the caller's own sleep.
--
-- KEYS  bell
--       bell: list  at most one token, or who sleeps: see bells/sleep
-- RETURNS  1
-- TWICE    1; there is one token, or one more sleeper wakes
-- COST     O(1), and once for each sleeper that is gone
-- @include ring
ring(bell)
return 1
