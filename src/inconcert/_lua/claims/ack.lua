-- claims/ack: jobs are done, or were cancelled while they ran.
--
-- KEYS  states bodies claimed facts watchers finished workers results..
--       claimed: hash, of this worker
--       results: string  of each job, in the same order: 'succeeded JSON' | 'cancelled '; with plugs then a string for the
--         attempts of each of which some failed, and the list, bell and delayed of each queue from which those come that have limits
-- PLUGS on_release on_end
-- ARGV  inboxes    what the channel of each session's inbox begins with
-- ARGV  worker     string
-- @only jobs
-- ARGV  histories  'NUMBER ENQUEUED_MS MOST:TASK[+],' of each of the jobs that is to be in the history of its task, by its
--                  place among them, from 1; with a '+' if that keeps its arguments
-- ARGV  failed     'NUMBER,' of each of the jobs of which attempts failed
-- @end
-- @only plain
-- ARGV  result     of the jobs that end alike, or ''; these are the first ones
-- ARGV  ttl_ms     of each of these
-- @end
-- ARGV  jobs..     id and position of each job, at most 500 of them; then, unless it ends alike, result or '', ttl_ms, and with
--                  plugs unique name or ''; a result is kept for ttl_ms; for 60 s if that is less than 1 s and somebody
--                  waits for it
-- MOVES    claimed: done cancelled; delayed: admitted
-- RETURNS  {1 or 0, ...}: for each job whether the worker held it at this position; 2 if others are to be told; without plugs 3 if
--          it has more than waiters, and nothing was changed: it is for the form with plugs
-- TWICE    0 for each: it is done already
-- COST     O(N), N jobs given, their steps and messages
-- @include end_done
-- @only plain
return end_done(keys, inboxes, worker, ARGV, JOBS, {unpack(KEYS, RESULTS)}, {result = result, ttl_ms = ttl_ms})
-- @end
-- @only jobs
local FIELDS = 5  -- arguments of each job
local first_other = RESULTS + (#ARGV - JOBS + 1) / FIELDS
local first_queue, attempts = first_other, {}
for n in string.gmatch(failed, '%d+') do
  attempts[tonumber(n)], first_queue = KEYS[first_queue], first_queue + 1
end
return end_done(keys, inboxes, worker, ARGV, JOBS, {unpack(KEYS, RESULTS, first_other - 1)},
  {queues = {facts = facts, unpack(KEYS, first_queue)}, histories = histories, attempts = attempts})
-- @end
