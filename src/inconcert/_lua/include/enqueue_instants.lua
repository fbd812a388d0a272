-- Enqueues the jobs of instants after `last_ms` and up to now, unless they exist or their results are kept: instant_ms,
-- id and envelope of each in `instants`, and its key in `results`.  Returns the latest, or `last_ms`, and how many are new.
-- @include ring
local function enqueue_instants(bodies, queue, bell, finished, name, last_ms, now_ms, results, instants)
  local FIELDS = 3
  -- Both are read before anything is changed: a foreign key stops the script here.
  redis.call('LLEN', queue)
  redis.call('LLEN', bell)
  local ready = {}
  for i = 1, #results do
    local at = (i - 1) * FIELDS + 1
    local instant_ms, id, envelope = tonumber(instants[at]), instants[at + 1], instants[at + 2]
    if last_ms < instant_ms and instant_ms <= now_ms then
      last_ms = instant_ms
      local has_ended = redis.call('EXISTS', results[i]) == 1
      if not has_ended and redis.call('HSETNX', bodies, id, string.format('%.0f ', now_ms) .. envelope) == 1 then
        ready[#ready + 1] = id
      end
    end
  end
  if #ready > 0 then
    redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
    redis.call('RPUSH', queue, unpack(ready))
    ring(bell)
  end
  return last_ms, #ready
end
