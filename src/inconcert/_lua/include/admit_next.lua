-- Moves the next jobs in line for a limit to the front of their queue: as many as `most`, as long as places are left of `n`.
-- They take their places when they are claimed.  `queues` has the list, the bell and the delayed of each queue that they
-- may be in; false for a bell that need not ring.  Returns how many were moved.
-- @include ring
local function admit_next(places, held_back, states, queues, limit, n, most)
  local PARTS = 3
  local left = math.min(most, n - tonumber(redis.call('HGET', places, limit) or 0))
  if left <= 0 then
    return 0
  end
  local members, ids, queue = {}, {}, nil
  local first = redis.call('ZRANGEBYLEX', held_back, '[' .. limit .. ' ', '(' .. limit .. '!', 'LIMIT', 0, left)
  for n = #first, 1, -1 do  -- so that the first in line is at the front
    local member = first[n]
    local id = string.match(member, '^%x+ %d+ (.*)$')
    for i = 1, #queues, PARTS do
      if redis.call('ZREM', queues[i + 2], id) == 1 then
        members[#members + 1], ids[#ids + 1], queue = member, id, i  -- all jobs of a limit are in one queue
      end
    end
  end
  if queue then
    redis.call('ZREM', held_back, unpack(members))
    redis.call('HDEL', states, unpack(ids))
    redis.call('LPUSH', queues[queue], unpack(ids))
    if queues[queue + 1] then
      ring(queues[queue + 1])
    end
  end
  return #ids
end
