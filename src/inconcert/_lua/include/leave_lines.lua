-- Takes a delayed job out of the line in which it is, if it is in one.  Returns its limits, or '' if it is not delayed.
local function leave_lines(held_back, delayed, bodies, id)
  local HELD_BACK_MS, TURN_MS = 4e15, 5e15  -- as in hold_back.lua
  local due_ms = tonumber(redis.call('ZSCORE', delayed, id) or -1)
  local limits = due_ms >= 0 and string.match(redis.call('HGET', bodies, id) or '', '^%d+ %d+(/%S+)') or ''
  local order = due_ms - (due_ms >= TURN_MS and TURN_MS or HELD_BACK_MS)
  for limit in string.gmatch(order > 0 and limits or '', ':(%x+)') do
    redis.call('ZREM', held_back, string.format('%s %014.0f %s', limit, order, id))
  end
  return limits
end
