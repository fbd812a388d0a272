-- quorum/release: release the lock on this server.
--
-- KEYS  holder
-- ARGV  me  string, unique to this attempt
-- RETURNS  1 it was mine and is now free | 0 it was not mine
-- TWICE    0: it is no longer mine
-- COST     O(1)
if redis.call('GET', holder) == me then
  return redis.call('DEL', holder)
end
return 0
