-- claims/nack: a job, or an item, was not done: let it wait for another attempt, put it back, or dead-letter it.
--
-- KEYS[1]  claimed   hash  id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  failures  hash  id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[3]  dead      zset  id -> when it was dead-lettered, server ms; permanent until replayed or purged
-- KEYS[4]  reasons   hash  id -> why it was dead-lettered, JSON, newline, name of its queue; permanent as dead
-- KEYS[5]  queue     list  ids, the next one first
-- KEYS[6]  bell      list  at most one token
-- KEYS[7]  delayed   zset  id -> due time, server ms
-- KEYS[8]  states    hash  id -> where it is, if not in its queue
-- KEYS[9]  progress  hash  id -> 'NUMBER JSON': its progress; kept between attempts
-- KEYS[10] watchers  zset  'id address': which processes wait for its end
-- KEYS[11] parents   hash  id -> ids of the jobs that it runs after
-- KEYS[12] children  zset  'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[13] outcomes  hash  id -> what became of a job that has children
-- KEYS[14] news      list  ids of jobs that have ended, or may run now, which nobody has seen to yet
-- KEYS[15] line      zset  address -> ticket: those who wait for room to put something in
-- KEYS[16] crashes   hash  id -> workers that died with it
-- KEYS[17] workers   zset  worker -> when it is presumed dead, ms by the lease clock; of those that hold something
-- KEYS[18] idle      zset  worker -> when it is presumed dead, ms by the lease clock; of those that hold nothing; 1 h
-- KEYS[19] groups    hash  group -> what has become of it; see read_group.lua
-- KEYS[20] settled   zset  group -> when to forget it, server ms; of those that have ended
-- KEYS[21] messages  hash  'LENGTH NAME ID' -> a message to that job
-- KEYS[22] awaited   hash  id -> 'LENGTH NAME' of each message for which it has left its worker; permanent until the job
--          has ended
-- KEYS[23] bodies    hash  id -> 'put_ms text'
-- KEYS[24] joiners   zset  address -> when it asked, server ms: those that wait until no item is left; 60 s
-- KEYS[25] undo      hash  id -> '-' of a job that has something to undo | 'failed JSON' or 'cancelled ': how it ends once
--          that is undone
-- KEYS[26] steps     hash  'NUMBER ID' -> a step of that job
-- KEYS[27] stepped   hash  id -> the number of its latest step
-- KEYS[28] received  hash  id -> 'COUNT BYTES NAMES': of the messages to it
-- KEYS[29] places    hash  limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[30] held_back zset  'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[31] history   zset  how the last jobs of a task ended; see tasks/history.lua
-- ARGV[1]  id        string
-- ARGV[2]  place     integer, as it was claimed
-- ARGV[3]  verdict   'retry' this attempt failed: another comes later | 'again' likewise: it comes at once | 'back' it was
--          no attempt | 'later', 'asleep' likewise: it comes later | 'crash' its worker ends with it: it comes at once | 'dead' it gave
--          up | 'undo' it ends as the reason says, once it is undone: it comes at once | 'undone' it gave up, and is undone
-- ARGV[4]  delay_ms  integer >= 0, before it comes later
-- ARGV[5]  reason    JSON, of the dead | text, of one that failed | 'failed JSON' or 'cancelled ', of one that is to be undone | 'LENGTH NAME' of each message for which one waits that is asleep, or ''
-- ARGV[6]  name      of the queue
-- ARGV[7]  inboxes   what the channel of each session's inbox begins with
-- ARGV[8]  worker    string
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
-- @include history_of
local claimed, failures, dead, reasons, queue, bell, delayed =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local states, progress, watchers = KEYS[8], KEYS[9], KEYS[10]
local line, crashes, bodies, joiners = KEYS[15], KEYS[16], KEYS[23], KEYS[24]
local places, held_back, history = KEYS[29], KEYS[30], KEYS[31]
local keys = {
  parents = KEYS[11], children = KEYS[12], outcomes = KEYS[13], news = KEYS[14], groups = KEYS[19], settled = KEYS[20],
  undo = KEYS[25], steps = KEYS[26], stepped = KEYS[27], received = KEYS[28], messages = KEYS[21], awaited = KEYS[22],
}
local id, place, verdict, delay_ms, reason = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5]
local workers, idle, messages, awaited, undo = KEYS[17], KEYS[18], KEYS[21], KEYS[22], KEYS[25]
local name, inboxes, worker = ARGV[6], ARGV[7], ARGV[8]
local goes_on = {retry = true, again = true, later = true, asleep = true}  -- with the progress that it reported
local claim = redis.call('HGET', claimed, id)
if not claim or string.match(claim, '^%d+') ~= place then
  return 0
end
-- Where it may go is read before anything is changed: a key that is not ours stops the script here.
local gives_up = verdict == 'dead' or verdict == 'undone'
local is_limited = redis.call('HEXISTS', places, id) == 1
local how_far = redis.call('HGET', progress, id)
redis.call('HLEN', undo)
local about = gives_up and history_of(redis.call('HGET', bodies, id))
if gives_up then
  redis.call('ZCARD', dead)
  redis.call('ZCARD', history)
  redis.call('HLEN', keys.groups)
  redis.call('ZCARD', keys.settled)
end
if not gives_up or is_limited then
  redis.call('LLEN', queue)
  redis.call('LLEN', bell)
  redis.call('ZCARD', delayed)
  redis.call('ZCARD', held_back)
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
if verdict == 'crash' then
  redis.call('HINCRBY', crashes, id, 1)
elseif verdict == 'retry' or verdict == 'again' or verdict == 'dead' then
  local count = string.match(redis.call('HGET', failures, id) or '0', '^%d+') + 1
  redis.call('HSET', failures, id, count .. ' ' .. (gives_up and '' or reason))
end
if gives_up then
  redis.call('HDEL', states, id)
  dead_letter(dead, reasons, id, now_ms, reason, name)
  notify_watchers(watchers, inboxes, id)
  wake_first_putter(line, inboxes)
  tell_joiners(joiners, bodies, dead, inboxes)
  if verdict == 'undone' then
    drop_steps(keys, {id})
  end
  local attempt, since_ms = string.match(claim, '^%d+ (%d+) (%d+)')
  record_end(history, about, id, 'failed ' .. reason, since_ms, attempt)
  if note_end(keys, id, 'failed ' .. reason) then
    return 2
  end
elseif verdict == 'undo' then
  redis.call('HSET', undo, id, reason)
  for _, key in ipairs({states, failures, crashes}) do
    redis.call('HDEL', key, id)
  end
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
