-- claims/held: the jobs, or items, that some workers hold.
--
-- KEYS  bodies claimed..
--       claimed: hash, of each worker
-- RETURNS  {count, nth, id, 'position attempt since_ms queue-name', body, ...}: of how many of the workers this is all, then
--          each job: whose it is, counted from 0, and the first 1,024 bytes of its body; the rest are for another call if
--          these have 1 MiB
-- TWICE    the same; nothing is changed
-- COST     O(C), C jobs claimed
-- @include if_small
local answer, bytes = {#KEYS - 1}, 0
for i = CLAIMED, #KEYS do
  if bytes >= 1048576 then
    answer[1] = i - 2
    break
  end
  local entries = redis.call('HGETALL', KEYS[i])
  for n = 1, #entries, 2 do
    if entries[n] ~= '#' then
      local body = string.sub(redis.call('HGET', bodies, entries[n]) or '', 1, 1024)
      bytes = bytes + #entries[n] + #entries[n + 1] + #body
      for _, part in ipairs({i - 2, entries[n], entries[n + 1], body}) do
        answer[#answer + 1] = part
      end
    end
  end
end
return if_small(answer, bytes)
