-- plugs/jobs/durable: what bodies keep of their work, and are sent: progress, steps, messages, what is to be undone.
--
-- KEYS  progress steps stepped messages received awaited undo
-- @include drop_steps

-- Drops it with those that are gone; of the dead, only how far they were.
local function durable_on_end(keys, jobs)
  local gone = {}
  for _, job in ipairs(jobs) do
    if job.is_gone then
      gone[#gone + 1] = job.id
    end
    redis.call('HDEL', keys.progress, job.id)
  end
  if #gone > 0 then
    drop_steps(keys, gone)
  end
end
