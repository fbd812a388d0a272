-- The entries of a holder among the holders, one for each permit that it has: itself, and 'HOLDER+2' to 'HOLDER+N' if its
-- name ends in 'xN'.  They end together, and when they lapse the first is dropped first.
local function units_of(holder)
  local units = {holder}
  for number = 2, tonumber(string.match(holder, 'x(%d+)$') or 1) do
    units[number] = holder .. '+' .. number
  end
  return units
end
