-- plugs/jobs/history: how the last jobs of a task have ended.
--
-- KEYS  history
-- @include record_end

-- Records the ends of those whose task has a history.
local function history_on_end(keys, jobs)
  for _, job in ipairs(jobs) do
    record_end(keys.history, job.about, job.id, job.outcome, job.began_ms, job.attempts)
  end
end
