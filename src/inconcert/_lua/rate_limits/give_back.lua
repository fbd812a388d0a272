-- rate_limits/give_back: give permits back that were not used. They count again if all that were taken later are given back.
--
-- KEYS[1]  taken    zset  request -> when all that were taken up to it are back, server us; until all are back
-- ARGV[1]  request  string, of the call that took them
-- RETURNS  1 given back | 0 not: they were before, or are back by themselves, or are the earliest that the server knows
-- TWICE    0, and nothing is changed
-- COST     O(log N), N who wait
local taken, request = KEYS[1], ARGV[1]
if (redis.call('ZRANK', taken, request) or 0) == 0 then  -- the earliest stays: it stands for all before it
  return 0
end
return redis.call('ZREM', taken, request)
