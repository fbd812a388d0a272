-- Notes that a job has left its queue which may have been let in from this line.  Returns whether one of that line was.
-- @include count_let_in
-- @include read_waits
local function leave_queue(limited, wait)
  local waits = read_waits(limited)
  local its = waits.of[wait.line]
  if not its or its.count == 0 then
    return false
  end
  count_let_in(limited, its, -1)
  its.count, waits.have_changed = its.count - 1, true
  its.cost = its.count > 0 and math.max(0, its.cost - wait.cost) or 0
  count_let_in(limited, its, 1)
  return true
end
