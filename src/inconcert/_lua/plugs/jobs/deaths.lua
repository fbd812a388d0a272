-- plugs/jobs/deaths: jobs that say of another one that it was dead-lettered.
--
-- KEYS  waiting news

-- @include count_waiting
-- Adds the job of `on_dead`, if a dead one has that: it has the body of the dead one, and why that died.  It waits for nothing,
-- and `resolve_dependents` makes it ready in its queue.  Of its own death no other job says so.
local function deaths_on_dead(keys, job, now_ms)
  local body = redis.call('HGET', keys.bodies, job.id) or ''
  if not string.find(body, '"on_dead":', 1, true) or string.find(job.id, '~dead', 1, true) then
    return
  end
  local is_json, envelope = pcall(cjson.decode, string.match(body, '{.*}'))
  local on_dead = is_json and envelope.on_dead  -- of the envelope itself: an argument may be named so, too
  if not on_dead then
    return
  end
  local head, tail = string.match(job.id, '^(.*)(%.%d+)$')
  local id = (head or job.id) .. string.format('~dead%.0f', now_ms) .. (tail or '')
  local text = string.format('%.0f dead %d %s', now_ms, #job.reason, job.reason)
  if redis.call('HSETNX', keys.bodies, id, text .. body) == 1 then
    redis.call('HSET', keys.states, id, 'waiting 0 ' .. on_dead[2])
    count_waiting(keys.waiting, on_dead[2], 1)
    redis.call('RPUSH', keys.news, id)
  end
  job.is_news = true
end
