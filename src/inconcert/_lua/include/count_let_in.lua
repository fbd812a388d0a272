-- Adds those that were let in from this line, and are waited for, to the sums of its limit and its rate; with a `sign` of -1
-- takes them away, before the line changes.
local function count_let_in(limited, wait, sign)
  local sums, is_kept = limited.waits.let_in, wait.until_ms * 1000 > limited.now_us
  for _, name in ipairs({wait.limit, wait.of_rate}) do
    local sum = sums[name] or {count = 0, cost = 0}
    sums[name] = sum
    if is_kept then
      sum.count, sum.cost = sum.count + sign * wait.count, sum.cost + sign * wait.cost
    end
  end
end
