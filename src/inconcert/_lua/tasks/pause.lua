-- tasks/pause: let nothing be claimed from a queue, or again.
--
-- KEYS[1]  paused     set     names of queues from which nothing is claimed
-- KEYS[2]  bell       list    at most one token; of the queue
-- ARGV[1]  name       of the queue
-- ARGV[2]  is_paused  1 | 0
-- RETURNS  1 that is new | 0 it was so before
-- TWICE    0
-- COST     O(1)
-- @include ring
local paused, bell = KEYS[1], KEYS[2]
if ARGV[2] == '1' then
  return redis.call('SADD', paused, ARGV[1])
end
local is_new = redis.call('SREM', paused, ARGV[1])
ring(bell)
return is_new
