-- tasks/commit_step: keep the result of a step of a job, for its later attempts.
--
-- KEYS[1]  claimed  hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  steps    hash    'NUMBER ID' -> a step of that job: signed JSON; permanent until the job has ended
-- KEYS[3]  stepped  hash    id -> the number of its latest step; permanent as steps
-- ARGV[1]  id       string
-- ARGV[2]  place    integer, as it was claimed
-- ARGV[3]  number   integer from 1 to 2,000, one more with each step of the job
-- ARGV[4]  step     signed JSON
-- RETURNS  1 kept | 0 the worker does not hold it at this place
-- TWICE    the same, and nothing is changed, even if later steps were kept in between
-- COST     O(1)
local claimed, steps, stepped = KEYS[1], KEYS[2], KEYS[3]
local id, place, number, step = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= place then
  return 0
end
local last = tonumber(redis.call('HGET', stepped, id) or 0)
if redis.call('HSETNX', steps, number .. ' ' .. id, step) == 1 and last < tonumber(number) then
  redis.call('HSET', stepped, id, number)
end
return 1
