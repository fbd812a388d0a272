-- Whether a delayed job would run but for others: it is held back in a line, or is the next one of its rate, `limits` are its own.
local function in_line(places, delayed, id, limits)
  local HELD_BACK_MS = 4e15  -- as in hold_back.lua
  local due_ms = tonumber(redis.call('ZSCORE', delayed, id) or 0)
  local rate = string.match(limits, '^/r[^:]+:(%x+)')
  local next_ms, next_id = string.match(rate and redis.call('HGET', places, rate) or '', '^%d+ (%d+) .* (%S*)$')
  return due_ms >= HELD_BACK_MS or next_id == id and due_ms == tonumber(next_ms)
end
