-- tasks/sweep_names: drop unique names that no live job has any more, at most 500.
--
-- KEYS  unique checks bodies dead
-- RETURNS  how many names were checked; 500 if there may be more
-- TWICE    checks others, if there are more
-- COST     O(M log N), N names, M checked
-- @include server_time
-- @include drop_names
return drop_names(unique, checks, bodies, dead, math.floor(server_time() / 1000), 500)
