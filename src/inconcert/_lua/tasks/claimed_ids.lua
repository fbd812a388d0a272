-- tasks/claimed_ids: the ids of the jobs that a worker has claimed, the first first, after one that was listed before.
--
-- KEYS  claimed
--       claimed: hash, of this worker
-- ARGV  last   number, the position of the last one; 0 to begin
-- ARGV  limit  number from 1 to 250
-- RETURNS  {id, 'position attempt since_ms queue-name', ...}
-- TWICE    the same, if it has claimed nothing since; nothing is changed
-- COST     O(C log C), C jobs claimed
local entries = redis.call('HGETALL', claimed)
local found = {}
for n = 1, #entries, 2 do
  local position = entries[n] ~= '#' and tonumber(string.match(entries[n + 1], '^%d+')) or 0
  if position > last then
    found[#found + 1] = {position, entries[n], entries[n + 1]}
  end
end
table.sort(found, function(one, other)
  return one[1] < other[1]
end)
local answer = {}
for i = 1, math.min(limit, #found) do
  answer[2 * i - 1], answer[2 * i] = found[i][2], found[i][3]
end
return answer
