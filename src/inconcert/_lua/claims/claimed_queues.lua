-- claims/claimed_queues: from which queues a worker has claimed something.
--
-- KEYS  claimed
--       claimed: hash, of that worker
-- RETURNS  {queue-name, ...}, each once
-- TWICE    the same; nothing is changed
-- COST     O(N), N jobs claimed
local names, seen = {}, {}
local entries = redis.call('HGETALL', claimed)
for i = 1, #entries, 2 do
  local name = string.match(entries[i + 1], '^%d+ %d+ %d+ (.*)$')
  if entries[i] ~= '#' and not seen[name] then
    seen[name] = true
    names[#names + 1] = name
  end
end
return names
