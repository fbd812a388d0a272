-- Moves the next jobs in line for a limit to the front of their queue: as many as `most`, as long as places are left in it.
-- They take their places when they are claimed.  For one with a name tasks/let_in does that.  A limit that no job has or waits for is
-- forgotten.  Returns how many were moved; for `queues` see admit_first.lua.
-- @include admit_first
local function admit_next(places, held_back, states, queues, limit, known, most)
  local left = math.min(most, known.most - known.count)
  local is_named = string.sub(limit, 1, 1) == 'x'
  local came = left > 0 and not is_named and #admit_first(held_back, states, queues, limit, left) or 0
  local is_over = known.count == 0 and (is_named or left > 0 and came == 0)
  if is_over and not (is_named and string.find(redis.call('HGET', places, '+') or '', limit .. ' ', 1, true)) then
    redis.call('HDEL', places, limit)
  end
  return came
end
