-- Stores the body of a job unless one is there: `put`, when it came, as in 'PUT_MS ', and its envelope, whose priority it notes
-- among what is known of the job.  Returns whether it was new, and the priority if it has one.
local function store_job(bodies, facts, id, put, envelope)
  if redis.call('HSETNX', bodies, id, put .. envelope) == 0 then
    return false
  end
  local priority = string.match(envelope, '^%d+%S* #[%x:]*!(%d)')
  if priority then
    redis.call('HSET', facts, id, priority .. ' 0 0 ')
  end
  return true, priority
end
