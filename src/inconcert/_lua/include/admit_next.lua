-- Moves the next jobs in line for a limit to the front of their queue: as many as `most`, as long as places are left in it.
-- They take their places when they are claimed.  Returns how many were moved; for `queues` see admit_first.lua.
-- @include admit_first
-- @include drop_limit
-- @include read_limit
local function admit_next(places, held_back, states, queues, limit, most)
  local known = read_limit(places, limit)
  local left = math.min(most, known.most - known.count)
  local came = left > 0 and #admit_first(held_back, states, queues, limit, left) or 0
  drop_limit(places, held_back, limit, known)
  return came
end
