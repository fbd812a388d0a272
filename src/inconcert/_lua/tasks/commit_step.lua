-- tasks/commit_step: keep the result of a step of a job, for its later attempts.
--
-- KEYS  claimed facts steps stepped
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- ARGV  number    integer from 1 to 2,000, one more with each step of the job
-- ARGV  step      signed JSON
-- RETURNS  1 kept | 0 the worker does not hold it at this position
-- TWICE    the same, and nothing is changed, even if later steps were kept in between
-- COST     O(1)
-- @include flag
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then
  return 0
end
flag(facts, id, 's')
local last = tonumber(redis.call('HGET', stepped, id) or 0)
if redis.call('HSETNX', steps, number .. ' ' .. id, step) == 1 and last < tonumber(number) then
  redis.call('HSET', stepped, id, number)
end
return 1
