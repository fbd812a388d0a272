-- claims/nack: a job, or an item, was not done: let it wait for another attempt, put it back, or dead-letter it.
--
-- KEYS  claimed facts dead reasons queue bell delayed states progress watchers parents children outcomes news line
-- KEYS  workers idle groups settled messages awaited bodies joiners undo steps stepped received places
-- KEYS  held_back history
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  place     integer, as it was claimed
-- ARGV  verdict   'retry' this attempt failed: another comes later | 'again' likewise: it comes at once | 'back' it was
--                 no attempt | 'later', 'asleep' likewise: it comes later | 'crash' its worker ends with it: it comes at once | 'dead' it gave
--                 up | 'undo' it ends as the reason says, once it is undone: it comes at once | 'undone' it gave up, and is undone
-- ARGV  delay_ms  number >= 0, before it comes later
-- ARGV  reason    JSON, of the dead | text, of one that failed | 'failed JSON' or 'cancelled ', of one that is to be undone | 'LENGTH NAME' of each message for which one waits that is asleep, or ''
-- ARGV  name      of the queue
-- ARGV  inboxes   what the channel of each session's inbox begins with
-- ARGV  worker    string
-- MOVES    claimed: retry later asleep again back crash undo dead undone; delayed: admitted
-- RETURNS  1 done | 2 done, and others are to be told | 0 the worker does not hold it at this place
-- TWICE    0: it is not held any more
-- COST     O(log N), N jobs delayed or dead
-- @include server_time
-- @include delay_job
-- @include dead_letter
-- @include fall_idle
-- @include notify_watchers
-- @include note_end
-- @include requeue
-- @include free_places
-- @include packed_names
-- @include drop_steps
-- @include wake_first_putter
-- @include tell_joiners
-- @include record_end
-- @include read_facts
-- @include write_facts
-- @include forget_attempts
-- @include flag
-- @include history_of
local goes_on = {retry = true, again = true, later = true, asleep = true}  -- with the progress that it reported
local claim = redis.call('HGET', claimed, id)
if not claim or string.match(claim, '^%d+') ~= place then
  return 0
end
-- Where it may go is read before anything is changed: a key that is not ours stops the script here.
local gives_up = verdict == 'dead' or verdict == 'undone'
local is_limited = redis.call('HEXISTS', places, id) == 1
local how_far = redis.call('HGET', progress, id)
-- @guard undo:hash
local about = gives_up and history_of(redis.call('HGET', bodies, id))
if gives_up then
  -- @guard dead:zset history:zset keys.groups:hash keys.settled:zset
end
if not gives_up or is_limited then
  -- @guard queue:list bell:list delayed:zset held_back:zset
end
local is_there = false  -- a message for which it is to wait, sent since it looked
local names = packed_names(verdict == 'asleep' and reason or '')
for _, each in ipairs(names) do
  is_there = is_there or redis.call('HEXISTS', messages, each .. ' ' .. id) == 1
end
local now_ms = math.floor(server_time() / 1000)
redis.call('HDEL', claimed, id)  -- first: it frees memory, so a full server lets the rest pass
if how_far and goes_on[verdict] then
  redis.call('HSET', progress, id, (string.gsub(how_far, '^%d+', '0')))  -- older than whatever its next worker reports
elseif how_far then
  redis.call('HDEL', progress, id)
end
redis.call('HDEL', awaited, id)
fall_idle(workers, idle, claimed, worker)
if is_limited then
  free_places(places, held_back, states, {queue, bell, delayed}, {id})
end
local is_cancelled = string.sub(redis.call('HGET', states, id) or '', 1, 10) == 'cancelling'
if verdict == 'crash' or verdict == 'retry' or verdict == 'again' or verdict == 'dead' then
  local known = read_facts(redis.call('HGET', facts, id))
  if verdict == 'crash' then
    known.crashes = known.crashes + 1
  else
    known.failures, known.why = known.failures + 1, gives_up and '' or reason
  end
  write_facts(facts, id, known)
end
if gives_up then
  redis.call('HDEL', states, id)
  dead_letter(dead, reasons, id, now_ms, reason, name)
  notify_watchers(watchers, inboxes, id)
  wake_first_putter(line, inboxes)
  tell_joiners(joiners, bodies, dead, inboxes)
  if verdict == 'undone' then
    drop_steps(keys, {id})
    local known = read_facts(redis.call('HGET', facts, id))
    known.flags = string.gsub(known.flags, '[smuv]', '')
    write_facts(facts, id, known)
  end
  local attempt, since_ms = string.match(claim, '^%d+ (%d+) (%d+)')
  record_end(history, about, id, 'failed ' .. reason, since_ms, attempt)
  if note_end(keys, id, 'failed ' .. reason) then
    return 2
  end
elseif verdict == 'undo' then
  redis.call('HSET', undo, id, reason)
  redis.call('HDEL', states, id)
  forget_attempts(facts, id)
  flag(facts, id, 'v')
  requeue(queue, bell, states, watchers, inboxes, id)
elseif (verdict == 'retry' or verdict == 'asleep' or verdict == 'later') and not is_cancelled and not is_there then
  if #names > 0 then
    redis.call('HSET', awaited, id, reason)
  end
  -- Later its worker is to be the last one that hears of it: those that were woken now would be behind it in line.
  delay_job(delayed, verdict ~= 'later' and bell, states, id, now_ms + delay_ms, name)
else
  requeue(queue, bell, states, watchers, inboxes, id)
end
return 1
