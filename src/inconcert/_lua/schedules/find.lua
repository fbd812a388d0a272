-- schedules/find: the definition of a schedule.
--
-- KEYS[1]  definitions  hash  id -> signed JSON
-- ARGV[1]  id           string
-- RETURNS  signed JSON | nil there is no such schedule
-- TWICE    the same
-- COST     O(1)
return redis.call('HGET', KEYS[1], ARGV[1])
