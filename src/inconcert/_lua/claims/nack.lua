-- claims/nack: a job, or an item, was not done: let it wait for another attempt, put it back, or dead-letter it.
--
-- KEYS  claimed facts dead reasons queue bell delayed states bodies workers
--       claimed: hash, of this worker
-- @only jobs
-- KEYS  watchers described
-- @end
-- PLUGS on_release on_back on_failure on_end on_dead
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- ARGV  verdict   'retry' this attempt failed: another comes later | 'again' likewise: it comes at once | 'back' it was
--                 no attempt | 'later', 'asleep' likewise: it comes later | 'crash' its worker ends with it: it comes at once | 'dead' it gave
--                 up | 'undo' it ends as the reason says, once it is undone: it comes at once | 'undone' it gave up, and is undone
-- ARGV  delay_ms  number >= 0, before it comes later
-- ARGV  reason    JSON, of the dead, and of a job that failed | text, of an item that failed | 'failed JSON' or 'cancelled ', of one that is to be undone | 'LENGTH NAME' of each message for which one waits that is asleep, or ''
-- ARGV  name      of the queue
-- ARGV  inboxes   what the channel of each session's inbox begins with
-- ARGV  worker    string
-- MOVES    claimed: retry later asleep again back crash undo dead undone; delayed: admitted; new: put_after
-- RETURNS  1 done | 2 done, and others are to be told | 0 the worker does not hold it at this position
-- TWICE    0: it is not held any more
-- COST     O(log N), N jobs delayed or dead
-- @include server_time
-- @include delay_job
-- @include bury
-- @include fall_idle
-- @include requeue
-- @include read_facts
-- @include write_facts
-- @only jobs
-- @include packed_names
-- @include begin_undo
-- @include read_reason
-- @end
local claim = redis.call('HGET', claimed, id)
if not claim or string.match(claim, '^%d+') ~= position then
  return 0
end
-- Where it may go is read before anything is changed: a key that is not ours stops the script here.
local gives_up = verdict == 'dead' or verdict == 'undone'
local needs_queue = not gives_up
-- @only jobs
local has_place, has_turn = unpack(redis.call('HMGET', keys.places, id, '=' .. id))
needs_queue = needs_queue or has_place or has_turn  -- others come there in its place
-- @end
-- @guard on_release on_back on_failure
if needs_queue then
  -- @guard queue:list bell:list delayed:zset
end
if gives_up then
  -- @guard dead:zset on_end
end
local comes_later = verdict == 'retry' or verdict == 'asleep' or verdict == 'later'
-- @only jobs
local names = packed_names(verdict == 'asleep' and reason or '')
for _, each in ipairs(names) do  -- one may have been sent since it looked
  comes_later = comes_later and redis.call('HEXISTS', keys.messages, each .. ' ' .. id) == 0
end
-- @end
local now_ms = math.floor(server_time() / 1000)
redis.call('HDEL', claimed, id)  -- first: it frees memory, so a full server lets the rest pass
fall_idle(workers, claimed, worker)
-- @each on_release(keys, {id}, {queue, bell, delayed, facts = facts})
local attempts, began_ms = string.match(claim, '^%d+ (%d+) (%d+)')
local is_failure = verdict == 'crash' or verdict == 'retry' or verdict == 'again' or verdict == 'dead'
if is_failure then
  local known, why = read_facts(redis.call('HGET', facts, id)), reason
  -- @only jobs
  why = read_reason(reason)
  -- @end
  if verdict == 'crash' then
    known.crashes = known.crashes + 1
  else
    known.failures, known.why = known.failures + 1, gives_up and '' or why
  end
  write_facts(facts, id, known)
end
-- @only jobs
local its_end = verdict == 'undo' and string.match(reason, '^failed (.*)$')
if is_failure or its_end then
  local job, why = {id = id, attempts = attempts, began_ms = began_ms}, verdict ~= 'crash' and (its_end or reason) or nil
  -- @each on_failure(keys, job, worker, why, now_ms)
end
-- @end
if gives_up then
  local job = {id = id, reason = reason, queue = name, attempts = attempts, began_ms = began_ms, is_undone = verdict == 'undone'}
  bury(keys, {job}, now_ms, inboxes, {queue, bell, delayed, facts = facts})
  return job.is_news and 2 or 1
end
-- @each on_back(keys, id, comes_later or verdict == 'asleep' or verdict == 'again')
-- @only jobs
if verdict == 'undo' then
  begin_undo(keys, id, reason)
end
comes_later = comes_later and string.sub(redis.call('HGET', states, id) or '', 1, 10) ~= 'cancelling'
if comes_later and #names > 0 then
  redis.call('HSET', keys.awaited, id, reason)
end
-- @end
if comes_later then
  -- Later its worker is to be the last one that hears of it: those that were woken now would be behind it in line.
  delay_job(delayed, verdict ~= 'later' and bell, states, id, now_ms + delay_ms, name)
else
  requeue(keys, queue, bell, delayed, inboxes, id)
end
return 1
