-- plugs/jobs/unique: names that no two live jobs have.
--
-- KEYS  unique checks

-- Frees the names of those that are gone; a dead job has none.
local function unique_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    local name = job.is_gone and job.name or ''
    if name ~= '' and string.match(redis.call('HGET', keys.unique, name) or '', '^(%S+) 0') == job.id then
      redis.call('HDEL', keys.unique, name)
      redis.call('ZREM', keys.checks, name)
    end
  end
end

-- @include live_job_of_name
-- @include take_name
-- Gives a job its name again, '' for none, unless another has that now.
local function unique_on_revive(keys, job, now_ms)
  if job.name ~= '' and not live_job_of_name(keys.unique, keys.bodies, keys.dead, job.name, now_ms) then
    take_name(keys.unique, keys.checks, job.id, job.name, '0', now_ms)
  end
end
