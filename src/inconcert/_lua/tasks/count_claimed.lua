-- tasks/count_claimed: how many jobs of each queue some workers hold.
--
-- KEYS  claimed..
--       claimed: hash, of each worker
-- RETURNS  {queue-name, count, ...}
-- TWICE    the same; nothing is changed
-- COST     O(C), C jobs claimed
local counts, answer = {}, {}
for i = CLAIMED, #KEYS do
  local entries = redis.call('HGETALL', KEYS[i])
  for n = 1, #entries, 2 do
    local name = string.match(entries[n + 1], '^%d+ %d+ %d+ (.*)$')
    if entries[n] ~= '#' then
      counts[name] = (counts[name] or 0) + 1
    end
  end
end
for name, count in pairs(counts) do
  answer[#answer + 1] = name
  answer[#answer + 1] = count
end
return answer
