-- Notes that a job joins this line, from which tasks/let_in takes it.
-- @include count_let_in
-- @include read_waits
local function add_wait(limited, wait)
  local waits = read_waits(limited)
  if not waits.of[wait.line] then
    local its = {line = wait.line, limit = wait.limit, of_rate = wait.of_rate, count = 0, cost = 0, until_ms = 0}
    waits[#waits + 1], waits.of[wait.line], waits.have_changed = its, its, true
    count_let_in(limited, its, 1)
  end
end
