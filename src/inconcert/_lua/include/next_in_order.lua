-- Ends the turn that a job has, which is `over`, in the strict order of its key, and gives it to the next in line: that goes to the
-- front of its queue.  For `queues` see admit_first.lua.  Returns how many came.
-- @include admit_first
local function next_in_order(places, held_back, states, queues, key, over)
  redis.call('HDEL', places, '@' .. key, '=' .. over)
  local ids = admit_first(held_back, states, queues, key, 1)
  if ids[1] then
    redis.call('HSET', places, '@' .. key, ids[1], '=' .. ids[1], key)
  end
  return #ids
end
