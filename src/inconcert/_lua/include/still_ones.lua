-- The stopped sessions: they were notified of room at least 2 s ago, and have not come since; without that
-- of the caller (`home`).
local function still_ones(told, home, now_ms)
  local still, entries = {}, redis.call('HGETALL', told)
  for i = 1, #entries, 2 do
    still[entries[i]] = entries[i] ~= home and tonumber(entries[i + 1]) + 2000 <= now_ms
  end
  return still
end
