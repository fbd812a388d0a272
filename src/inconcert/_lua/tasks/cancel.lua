-- tasks/cancel: cancel jobs: they will not run, or are stopped.
--
-- KEYS  bodies states dead facts watchers queue delayed waiting pending unfollowed recent older bell places held_back results..
-- PLUGS on_back on_end
--       results: string  of each job, in the same order: 'succeeded JSON' | 'cancelled '; then one for the attempts of each
-- ARGV  ttl_ms   integer > 0, how long the fact that they were cancelled is kept
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  request  string, unique to this call
-- ARGV  ids..    of the jobs, 1 to 250
-- MOVES    queue: cancelled; delayed: cancelled undo admitted; waiting: cancelled undo
-- RETURNS  {answer, ...}, for each job, or for the first ones if all have more than 2,000 steps and messages: 1 it was cancelled | 2 the same, and dependents must be notified | 0 it runs: its
--          worker is to stop it; or it is to be undone, and ends then | 3 it had ended, or never existed | 4 it is in
--          another queue, and delayed, or its caller chose its id: nothing is changed
-- TWICE    the same, and nothing is changed, even if some were replayed in between
-- COST     O(N log D + S), and O(Q) for each whose caller chose its id; N ids, Q jobs in the queue, D delayed jobs of the queue, S steps and messages of these jobs: at most 2,000, or one job's
-- @include recall
-- @include remember
-- @include within_volume
-- @include cancel_jobs
local answer = {}
local answered = recall(recent, older, request)
if answered then
  for one in string.gmatch(answered, '%d') do
    answer[#answer + 1] = tonumber(one)
  end
  return answer
end
-- A foreign key stops the script here.
-- @guard queue:list bell:list on_back on_end
local ids = {unpack(ARGV, IDS)}
local first_attempts = RESULTS + #ids
ids = {unpack(ids, 1, within_volume(keys, ids))}
local results, kept = {unpack(KEYS, RESULTS, first_attempts - 1)}, {unpack(KEYS, first_attempts)}
answer = cancel_jobs(keys, {queue, bell, delayed, facts = facts}, ids, results, kept, inboxes, ttl_ms)
remember(recent, older, request, table.concat(answer))
return answer
