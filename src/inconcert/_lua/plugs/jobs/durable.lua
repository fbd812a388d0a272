-- plugs/jobs/durable: what bodies keep of their work, and are sent: progress, steps, messages, what is to be undone.
--
-- KEYS  progress steps stepped messages received awaited undo
-- GUARD  progress:hash undo:hash

-- @include drop_steps
-- @include read_facts
-- @include write_facts
-- Drops it with those that are gone, or undone; of the dead, only how far they were.
local function durable_on_end(keys, jobs)
  local ids, dropped = {}, {}
  for n, job in ipairs(jobs) do
    ids[n] = job.id
    if job.is_gone or job.is_undone then
      dropped[#dropped + 1] = job.id
    end
    if job.is_undone then
      local known = read_facts(redis.call('HGET', keys.facts, job.id))
      known.flags = string.gsub(known.flags, '[smuv]', '')
      write_facts(keys.facts, job.id, known)
    end
  end
  redis.call('HDEL', keys.progress, unpack(ids))
  redis.call('HDEL', keys.awaited, unpack(ids))
  if #dropped > 0 then
    drop_steps(keys, dropped)
  end
end

-- Forgets for which messages a job waited, and how far it was, unless it `goes_on` from there.
local function durable_on_back(keys, id, goes_on)
  local how_far = goes_on and redis.call('HGET', keys.progress, id)
  if how_far then
    redis.call('HSET', keys.progress, id, (string.gsub(how_far, '^%d+', '0')))  -- older than whatever its next worker reports
  else
    redis.call('HDEL', keys.progress, id)
  end
  redis.call('HDEL', keys.awaited, id)
end

-- @include drop_steps
-- Drops what is left of the dead.
local function durable_on_purge(keys, ids)
  drop_steps(keys, ids)
end
