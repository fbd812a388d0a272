-- Moves the first jobs in line for a limit, at most so many, to the front of their queue, or with 'RPUSH' to its back; among
-- those of their priority, if they have one.
-- `queues` has the list, the bell and the delayed of each queue that they may be in; false for a bell that need not ring; and in `facts` the
-- key of what is known of jobs.
-- Returns their ids.
-- @include put_ready
-- @include ring
local function admit_first(held_back, states, queues, limit, count, push)
  local PARTS = 3
  local members, ids = redis.call('ZRANGEBYLEX', held_back, '[' .. limit .. ' ', '(' .. limit .. '!', 'LIMIT', 0, count), {}
  for n, member in ipairs(members) do
    ids[#members + 1 - n] = string.match(member, '^%x+ %d+ (.*)$')  -- so that the first in line is at the front
  end
  for i = 1, #ids > 0 and #queues or 0, PARTS do
    local were_there = redis.call('ZREM', queues[i + 2], unpack(ids))
    if were_there > 0 then  -- all jobs of a limit are in one queue
      if were_there < #ids then  -- none that is elsewhere by now comes to the queue
        local delayed = {}
        for n, state in ipairs(redis.call('HMGET', states, unpack(ids))) do
          delayed[#delayed + 1] = string.sub(state or '', 1, 8) == 'delayed ' and ids[n] or nil
        end
        ids = delayed
      end
      redis.call('ZREM', held_back, unpack(members))
      redis.call('HDEL', states, unpack(ids))
      put_ready(queues.facts, queues[i], queues[i + 2], ids, push or 'LPUSH')
      if queues[i + 1] then
        ring(queues[i + 1])
      end
      return ids
    end
  end
  return {}
end
