-- plugs/jobs/unique: names that no two live jobs have.
--
-- KEYS  unique checks

-- Frees the names of those that are gone; a dead job has none.
local function unique_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    local name = job.is_gone and job.name or ''
    if name ~= '' and redis.call('HGET', keys.unique, name) == job.id .. ' 0' then
      redis.call('HDEL', keys.unique, name)
      redis.call('ZREM', keys.checks, name)
    end
  end
end
