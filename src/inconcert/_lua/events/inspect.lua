-- events/inspect: whether the flag is set, and the server's time.
--
-- KEYS  flag
-- RETURNS  {1 set or 0 not, now_us}
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include server_time
return {redis.call('EXISTS', flag), server_time()}
