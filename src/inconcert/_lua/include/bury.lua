-- Dead-letters jobs, or items, and tells all who have to do with their end: each has its `id`, the `reason` and the name of its
-- `queue`; a job also how many `attempts` it had and when the last one began, '' if it ended between or before its attempts, and
-- whether it `is_undone`.  Then `is_news` says whether others are to be told of it.
-- `queues` has the list, bell and delayed of each queue from which they come; nil if they were in none.
-- @include dead_letter
-- @only jobs
-- @include notify_watchers
-- @end
local function bury(keys, jobs, now_ms, inboxes, queues)
  for _, job in ipairs(jobs) do
    redis.call('HDEL', keys.states, job.id)  -- first: it frees memory
    dead_letter(keys, job, now_ms)
    -- @only jobs
    notify_watchers(keys.watchers, inboxes, job.id)
    job.outcome = 'failed ' .. job.reason
    -- @end
  end
  -- @each on_end(keys, jobs, inboxes, queues)
end
