-- tasks/workers: who claims jobs, the first 1,000.
--
-- KEYS[1]  workers  zset    worker -> when it is taken for dead, server ms
-- RETURNS  {worker, ...}, also those that are dead and not yet recovered
-- TWICE    the same; nothing is changed
-- COST     O(N), N workers
return redis.call('ZRANGE', KEYS[1], 0, 999)
