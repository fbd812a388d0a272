-- tasks/progress: say how far a job is.
--
-- KEYS[1]  claimed   hash    id -> 'place attempt queue-name'; of this worker
-- KEYS[2]  progress  hash    id -> how far it is, JSON
-- ARGV[1]  id        string
-- ARGV[2]  place     integer, as it was claimed
-- ARGV[3]  how_far   JSON
-- RETURNS  1 said | 0 the worker does not hold it at this place
-- TWICE    the same
-- COST     O(1)
local claimed, progress = KEYS[1], KEYS[2]
if string.match(redis.call('HGET', claimed, ARGV[1]) or '', '^%d+') ~= ARGV[2] then
  return 0
end
redis.call('HSET', progress, ARGV[1], ARGV[3])
return 1
