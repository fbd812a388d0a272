-- tasks/save_cursor: keep how far a loop of a job is, in the place of what was kept of it before.
--
-- KEYS[1]  claimed  hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  steps    hash    'NUMBER ID' -> a step of that job: signed JSON, of a loop after its count; permanent until the job
--          has ended
-- KEYS[3]  stepped  hash    id -> the number of its latest step; permanent as steps
-- ARGV[1]  id       string
-- ARGV[2]  place    integer, as it was claimed
-- ARGV[3]  number   integer from 1 to 1,000, one for each loop of the job
-- ARGV[4]  count    integer, higher each time
-- ARGV[5]  step     signed JSON
-- RETURNS  1 kept, or it was further already | 0 the worker does not hold it at this place
-- TWICE    the same, and nothing is changed, even if a later one was kept in between
-- COST     O(1)
local claimed, steps, stepped = KEYS[1], KEYS[2], KEYS[3]
local id, place, number, count, step = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= place then
  return 0
end
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
