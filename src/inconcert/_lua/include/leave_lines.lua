-- Takes a delayed job out of the line in which it is, if it is in one.  Returns its limits, or '' if it is not delayed.
-- @include head_of
local function leave_lines(held_back, delayed, bodies, id)
  local HELD_BACK_MS, TURN_MS = 4e15, 5e15  -- as in hold_back.lua
  local due_ms = tonumber(redis.call('ZSCORE', delayed, id) or -1)
  local _, _, limits = head_of(due_ms >= 0 and redis.call('HGET', bodies, id))
  limits = limits or ''
  local order = due_ms - (due_ms >= TURN_MS and TURN_MS or HELD_BACK_MS)
  for limit in string.gmatch(order > 0 and limits or '', ':(%x+)') do
    redis.call('ZREM', held_back, string.format('%s %014.0f %s', limit, order, id))
  end
  return limits
end
