-- Takes a delayed job out of the line in which it is, if it is in one.  Returns its limits, or '' if it is not delayed.
-- @include head_of
local function leave_lines(held_back, delayed, bodies, id)
  local HELD_BACK_MS, BAND_MS = 4e15, 5e14  -- as in hold_back.lua: its order is above the beginning of a band
  local due_ms = tonumber(redis.call('ZSCORE', delayed, id) or -1)
  local _, _, limits = head_of(due_ms >= 0 and redis.call('HGET', bodies, id))
  limits = limits or ''
  local order = due_ms >= HELD_BACK_MS and due_ms % BAND_MS or 0
  for limit in string.gmatch(order > 0 and limits or '', ':(%x+)') do
    redis.call('ZREM', held_back, string.format('%s %014.0f %s', limit, order, id))
  end
  return limits
end
