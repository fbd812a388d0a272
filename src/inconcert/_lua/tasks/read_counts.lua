-- tasks/read_counts: what workers have counted of some tasks, each on a day.
--
-- KEYS  days..
--       days: hash of each of these tasks on a day
-- RETURNS  {{field, number, ...}, ...}: for each key
-- TWICE    the same; nothing is changed
-- COST     O(N), N keys, at most 100, with about 100 fields each
local found = {}
for i = DAYS, #KEYS do
  found[#found + 1] = redis.call('HGETALL', KEYS[i])
end
return found
