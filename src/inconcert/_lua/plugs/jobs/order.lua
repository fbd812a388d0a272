-- plugs/jobs/order: jobs of a key one after the other, each when the one before it has ended.
--
-- KEYS  places held_back
-- GUARD  places:hash held_back:zset

-- @include next_in_order
-- Lets the next of each key come, unless the one that had the turn is dead, and stops its key; `queues` has those from which
-- jobs with limits come, and nothing if only such end as had no turn, or stop their keys.
local function order_on_end(keys, jobs, _, queues)
  local fields = {}
  for n, job in ipairs(queues and #queues > 0 and jobs or {}) do
    fields[n] = '=' .. job.id
  end
  for n, key in ipairs(#fields > 0 and redis.call('HMGET', keys.places, unpack(fields)) or {}) do
    local job = jobs[n]
    local stops = key and not job.is_gone and string.find(redis.call('HGET', keys.bodies, job.id) or '', '^%d+ %d+%S*/o:')
    if key and not stops and not job.is_left then
      next_in_order(keys.places, keys.held_back, keys.states, queues, key, job.id)
    end
  end
end
