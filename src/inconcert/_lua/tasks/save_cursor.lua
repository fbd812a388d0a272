-- tasks/save_cursor: keep how far a loop of a job is, in the place of what was kept of it before.
--
-- KEYS  claimed facts steps stepped
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- ARGV  number    integer from 1 to 1,000, one for each loop of the job
-- ARGV  count     integer, higher each time
-- ARGV  step      signed JSON
-- RETURNS  1 kept, or it was further already | 0 the worker does not hold it at this position
-- TWICE    the same, and nothing is changed, even if a later one was kept in between
-- COST     O(1)
-- @include flag
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then
  return 0
end
flag(facts, id, 's')
local last = tonumber(redis.call('HGET', stepped, id) or 0)
local field = number .. ' ' .. id
local before = string.match(redis.call('HGET', steps, field) or '', '^(%d+) ')
if not before or tonumber(before) < tonumber(count) then
  redis.call('HSET', steps, field, count .. ' ' .. step)
  if last < tonumber(number) then
    redis.call('HSET', stepped, id, number)
  end
end
return 1
