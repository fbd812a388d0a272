-- Moves the next jobs in line for a limit to the front of their queue: as many as `most`, as long as places are left of `n`.
-- They take their places when they are claimed.  Returns how many were moved; for `queues` see admit_first.lua.
-- @include admit_first
local function admit_next(places, held_back, states, queues, limit, n, most)
  local left = math.min(most, n - tonumber(redis.call('HGET', places, limit) or 0))
  return left > 0 and #admit_first(held_back, states, queues, limit, left) or 0
end
