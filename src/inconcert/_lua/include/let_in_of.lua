-- How many jobs of other lines were let in that count in the limit of this one, and are waited for, and how much those cost that
-- count in its rate; and whether there is a line for either.
-- @include read_waits
local function let_in_of(limited, wait)
  local waits = read_waits(limited)
  local own = waits.of[wait.line]
  local is_kept = own and own.until_ms * 1000 > limited.now_us
  local of_limit = wait.limit ~= '-' and waits.let_in[wait.limit]
  local of_rate = wait.of_rate ~= '-' and waits.let_in[wait.of_rate]
  local count = of_limit and of_limit.count - (is_kept and own.count or 0) or 0
  local cost = of_rate and of_rate.cost - (is_kept and own.cost or 0) or 0
  return count, cost, (of_limit or of_rate) and true or false
end
