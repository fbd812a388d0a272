-- quorum/release: release the lock on this server.
--
-- KEYS[1]  holder  string  its holder here; the key ends with the lease
-- ARGV[1]  me      string, unique to this attempt
-- RETURNS  1 it was mine and is now free | 0 it was not mine
-- TWICE    0: it is no longer mine
-- COST     O(1)
local holder, me = KEYS[1], ARGV[1]
if redis.call('GET', holder) == me then
  return redis.call('DEL', holder)
end
return 0
