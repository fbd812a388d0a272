-- tasks/progress: report a job's progress.
--
-- KEYS[1]  claimed   hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  progress  hash    id -> 'NUMBER JSON': its progress
-- ARGV[1]  id        string
-- ARGV[2]  place     integer, as it was claimed
-- ARGV[3]  how_far   JSON
-- ARGV[4]  number    integer, grows with each progress report of this worker
-- RETURNS  1 reported | 0 the worker does not hold it at this place
-- TWICE    the same, and nothing is changed, even if it has reported more in between
-- COST     O(1)
local claimed, progress = KEYS[1], KEYS[2]
if string.match(redis.call('HGET', claimed, ARGV[1]) or '', '^%d+') ~= ARGV[2] then
  return 0
end
local said = string.match(redis.call('HGET', progress, ARGV[1]) or '0', '^%d+')
if tonumber(said) < tonumber(ARGV[4]) then
  redis.call('HSET', progress, ARGV[1], ARGV[4] .. ' ' .. ARGV[3])
end
return 1
