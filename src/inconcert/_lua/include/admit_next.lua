-- Moves the next jobs in line for a limit to the front of their queue: as many as `most`, as long as places are left in it.
-- They take their places when they are claimed.  A limit that no job has or waits for is forgotten.  Returns how many were
-- moved; for `queues` see admit_first.lua.
-- @include admit_first
local function admit_next(places, held_back, states, queues, limit, known, most)
  local left = math.min(most, known.most - known.count)
  local came = left > 0 and #admit_first(held_back, states, queues, limit, left) or 0
  if left > 0 and came == 0 and known.count == 0 then
    redis.call('HDEL', places, limit)
  end
  return came
end
