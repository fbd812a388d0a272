-- plugs/jobs/after: jobs that run after others.
--
-- KEYS  parents children outcomes news

-- @include has_children
-- Notes the ends of those for which others wait, or that waited for others; `resolve_dependents` processes them.
local function after_on_end(keys, jobs)
  if redis.call('EXISTS', keys.parents, keys.children) == 0 then
    return
  end
  for _, job in ipairs(jobs) do
    local is_awaited = has_children(keys.children, job.id)
    if is_awaited then
      redis.call('HSET', keys.outcomes, job.id, job.outcome)
    end
    if is_awaited or redis.call('HEXISTS', keys.parents, job.id) == 1 then
      redis.call('RPUSH', keys.news, job.id)
      job.is_news = true
    end
  end
end

-- Lets those be forgotten for which they waited.
local function after_on_purge(keys, ids)
  for i, list in ipairs(redis.call('HMGET', keys.parents, unpack(ids))) do
    if list then
      redis.call('RPUSH', keys.news, ids[i])
    end
  end
end

-- Forgets how it ended.
local function after_on_revive(keys, job)
  redis.call('HDEL', keys.outcomes, job.id)
end
