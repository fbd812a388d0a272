-- tasks/progress: report a job's progress.
--
-- KEYS  claimed facts progress
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- ARGV  how_far   JSON
-- ARGV  number    integer, grows with each progress report of this worker
-- RETURNS  1 reported | 0 the worker does not hold it at this position
-- TWICE    the same, and nothing is changed, even if it has reported more in between
-- COST     O(1)
-- @include flag
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then
  return 0
end
flag(facts, id, 'p')
local said = string.match(redis.call('HGET', progress, id) or '0', '^%d+')
if tonumber(said) < tonumber(number) then
  redis.call('HSET', progress, id, number .. ' ' .. how_far)
end
return 1
