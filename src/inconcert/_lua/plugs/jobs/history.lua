-- plugs/jobs/history: how the last jobs of a task have ended.
--
-- KEYS  history
-- GUARD  history:zset

-- @include record_end
-- @include history_of
-- Records the ends of those whose task has a history; `about` says so of one whose body is gone, as history_of.lua has it.
local function history_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    local about = job.about or not job.is_gone and history_of(redis.call('HGET', keys.bodies, job.id))
    record_end(keys.history, about or '', job.id, job.outcome, job.began_ms, job.attempts)
  end
end
