-- How many jobs of other lines were let in that count in the limit of this one, and are waited for, and how much those cost that
-- count in its rate; and whether there is a line for either.
-- @include read_waits
local function let_in_of(limited, wait)
  local count, cost, has_line = 0, 0, false
  for _, each in ipairs(read_waits(limited)) do
    local has_limit = wait.limit ~= '-' and each.limit == wait.limit
    local has_rate = wait.of_rate ~= '-' and each.of_rate == wait.of_rate
    has_line = has_line or has_limit or has_rate
    if each.line ~= wait.line and each.until_ms * 1000 > limited.now_us then
      count = count + (has_limit and each.count or 0)
      cost = cost + (has_rate and each.cost or 0)
    end
  end
  return count, cost, has_line
end
