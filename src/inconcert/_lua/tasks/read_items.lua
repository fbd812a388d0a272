-- tasks/read_items: the items of a job's stream behind one of them.
--
-- KEYS  stream items
--       stream: hash  run, attempt, last: which attempt wrote the items, and the number of the latest
--       items: list  signed JSON, the latest has the number `last`
-- ARGV  run    the run of the items that are known, or ''
-- ARGV  after  number >= 0: the number of the last of these | -N: the latest N, from 1 to 1,000
-- RETURNS  {run, attempt, first, last, item, ...}: the run that is there now, the number of the first item here, and of the
--          latest there is; at most 1,000 items, and 1 MiB; of another run from its beginning | {'', 0, 1, 0} no stream
-- TWICE    the same; nothing is changed
-- COST     O(N), N items kept
-- @include add_messages
-- @include if_small
local latest, attempt, last = unpack(redis.call('HMGET', stream, 'run', 'attempt', 'last'))
if not latest then
  return {'', 0, 1, 0}
end
last = tonumber(last)
local oldest = last - redis.call('LLEN', items) + 1
local next = run == latest and after + 1 or 1
if after < 0 then
  next = last + after + 1
end
local first = math.max(oldest, next)
return if_small(add_messages({latest, tonumber(attempt), first, last}, items, first - oldest, math.min(1000, last - first + 1)))
