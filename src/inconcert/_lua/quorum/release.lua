-- quorum/release: give the lock on this server back.
--
-- KEYS[1]  holder  string  who has it here; it ends with the lease
-- ARGV[1]  me      string, unique to this attempt
-- RETURNS  1 it was mine, and is free now | 0 it was not mine
-- TWICE    0: it is not mine any more
-- COST     O(1)
local holder, me = KEYS[1], ARGV[1]
if redis.call('GET', holder) == me then
  return redis.call('DEL', holder)
end
return 0
