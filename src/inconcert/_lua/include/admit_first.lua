-- Moves the first jobs in line for a limit, at most so many, to the front of their queue, or with 'RPUSH' to its back.
-- `queues` has the list, the bell and the delayed of each queue that they may be in; false for a bell that need not ring.
-- Returns their ids.
-- @include ring
local function admit_first(held_back, states, queues, limit, count, push)
  local PARTS = 3
  local members, ids, queue = {}, {}, nil
  local first = redis.call('ZRANGEBYLEX', held_back, '[' .. limit .. ' ', '(' .. limit .. '!', 'LIMIT', 0, count)
  for n = #first, 1, -1 do  -- so that the first in line is at the front
    local id = string.match(first[n], '^%x+ %d+ (.*)$')
    for i = 1, #queues, PARTS do
      if redis.call('ZREM', queues[i + 2], id) == 1 then
        members[#members + 1], ids[#ids + 1], queue = first[n], id, i  -- all jobs of a limit are in one queue
      end
    end
  end
  if queue then
    redis.call('ZREM', held_back, unpack(members))
    redis.call('HDEL', states, unpack(ids))
    redis.call(push or 'LPUSH', queues[queue], unpack(ids))
    if queues[queue + 1] then
      ring(queues[queue + 1])
    end
  end
  return ids
end
