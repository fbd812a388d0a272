-- tasks/cancel: cancel jobs: they will not run, or are stopped.
--
-- KEYS[1]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]  states    hash    id -> where it is, unless in its queue
-- KEYS[3]  dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[4]  failures  hash    id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[5]  crashes   hash    id -> workers that died with it
-- KEYS[6]  watchers  zset    'id address': processes that wait for its end
-- KEYS[7]  queue     list    ids, the next one first; of their queue
-- KEYS[8]  delayed   zset    id -> due time, server ms; likewise
-- KEYS[9]  parents   hash    id -> ids of the jobs it runs after
-- KEYS[10] children  zset    'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[11] outcomes  hash    id -> outcome of a job that has children
-- KEYS[12] news      list    ids of jobs that have ended or may run now, not processed yet
-- KEYS[13] waiting   hash    queue name -> its jobs that wait for others
-- KEYS[14] pending   hash    id -> ids of the parents that it still waits for
-- KEYS[15] unfollowed hash   id -> ids of its parents in other partitions that do not know of it yet
-- KEYS[16] recent    hash    request -> its answer, 120 s
-- KEYS[17] older     hash    earlier entries of the same; at most 120 s
-- KEYS[18] steps     hash    'NUMBER ID' -> a step of that job
-- KEYS[19] stepped   hash    id -> the number of its latest step
-- KEYS[20] groups    hash    group -> what has become of it; see read_group.lua
-- KEYS[21] settled   zset    group -> when to forget it, server ms; of those that have ended
-- KEYS[22] messages  hash    'LENGTH NAME ID' -> a message to that job
-- KEYS[23] received  hash    id -> 'COUNT BYTES NAMES': of the messages to it
-- KEYS[24] awaited   hash    id -> 'LENGTH NAME' of each message for which it has left its worker
-- KEYS[25] undo      hash    id -> '-' of a job that has something to undo | 'failed JSON' or 'cancelled ': how it ends
--          once that is undone
-- KEYS[26] bell      list    at most one token
-- KEYS[27] places    hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[28] held_back zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[29] history   zset    how the last jobs of a task ended; see tasks/history.lua
-- KEYS[30] progress  hash    id -> 'NUMBER JSON': its progress
-- KEYS[31..] results string  of each job, in the same order: 'succeeded JSON' | 'cancelled '
-- ARGV[1]  ttl_ms    integer > 0, how long the fact that they were cancelled is kept
-- ARGV[2]  inboxes   prefix of each session's inbox channel
-- ARGV[3]  request   string, unique to this call
-- ARGV[4..] ids      of the jobs, 1 to 250
-- RETURNS  {answer, ...}, for each job, or for the first ones if all have more than 2,000 steps and messages: 1 it was cancelled | 2 the same, and dependents must be notified | 0 it runs: its
--          worker is to stop it; or it is to be undone, and ends then | 3 it had ended, or never existed | 4 it is delayed, and
--          in another queue: nothing is changed
-- TWICE    the same, and nothing is changed, even if some were replayed in between
-- COST     O(N log D + S), N ids, D delayed jobs of the queue, S steps and messages of these jobs: at most 2,000, or one job's
-- @include recall
-- @include remember
-- @include notify_watchers
-- @include note_end
-- @include count_waiting
-- @include publish
-- @include drop_cancelled
-- @include drop_steps
-- @include within_volume
-- @include ring
-- @include leave_lines
-- @include replace_next
-- @include record_end
-- @include history_of
local FIRST_RESULT, FIRST_ID = 31, 4  -- KEYS of the results; ARGV of the ids

local bodies, states, dead, failures, crashes, watchers, queue, delayed =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local waiting = KEYS[13]
local keys = {
  parents = KEYS[9], children = KEYS[10], outcomes = KEYS[11], news = KEYS[12], groups = KEYS[20], settled = KEYS[21],
  steps = KEYS[18], stepped = KEYS[19], messages = KEYS[22], received = KEYS[23], awaited = KEYS[24], undo = KEYS[25],
}
local bell, places, held_back, history, progress = KEYS[26], KEYS[27], KEYS[28], KEYS[29], KEYS[30]
local pending, unfollowed, recent, older = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local ttl_ms, inboxes, request = ARGV[1], ARGV[2], ARGV[3]
local answer, ended, limits, was_here = {}, {}, {}, {}
local answered = recall(recent, older, request)
if answered then
  for one in string.gmatch(answered, '%d') do
    answer[#answer + 1] = tonumber(one)
  end
  return answer
end

-- A foreign key stops the script here.
local some_are_held_back = redis.call('ZCARD', held_back) > 0
local some_are_limited = redis.call('HLEN', places) > 0 or some_are_held_back

local function cancel(id, result)
  local body = redis.call('HGET', bodies, id)
  if not body or redis.call('ZSCORE', dead, id) then
    return 3
  end
  local state, about = string.match(redis.call('HGET', states, id) or '', '^(%S+) (.*)$')
  if state == 'delayed' and not was_here[id] then
    return 4
  end
  local undo = redis.call('HGET', keys.undo, id)
  if undo and undo ~= '-' then
    return 0
  end
  if (state == 'running' or state == 'cancelling') and about ~= '' then
    redis.call('HSET', states, id, 'cancelling ' .. about)
    publish(inboxes .. string.match(about, '^(.*)%.'), about .. ' cancelled ' .. id)
    return 0
  end
  if state == 'waiting' then
    count_waiting(waiting, string.match(about, '^%S+ (.*)$'), -1)
  end
  if undo then
    redis.call('HSET', keys.undo, id, 'cancelled ')
    for _, key in ipairs({states, failures, crashes, progress, pending, unfollowed, keys.awaited}) do
      redis.call('HDEL', key, id)
    end
    if state == 'waiting' or state == 'delayed' then
      redis.call('LPUSH', queue, id)
      ring(bell)
    end
    return 0
  end
  local text = some_are_limited and state ~= 'waiting' and state ~= 'delayed'
    and string.match(body, '^%d+ %d+(/%S+)')
  local key = text and string.match(text, '/s:(%x+)')
  local has_turn = key and redis.call('HGET', places, '@' .. key) == id
  if has_turn or text and some_are_held_back then
    redis.call('HSET', places, id, '-' .. text)  -- it may have been about to run: who claims it lets others in
  end
  local about = history_of(body)
  local failed = about and string.match(redis.call('HGET', failures, id) or '0', '^%d+')
  local attempts = about and failed + (redis.call('HGET', crashes, id) or 0)
  -- Its id stays in its queue: without a body, it is not run.
  for _, key in ipairs({bodies, states, failures, crashes, pending, unfollowed}) do
    redis.call('HDEL', key, id)
  end
  ended[#ended + 1] = id
  redis.call('SET', result, 'cancelled ', 'PX', ttl_ms)
  notify_watchers(watchers, inboxes, id)
  record_end(history, about, id, 'cancelled ', '', attempts)
  return note_end(keys, id, 'cancelled ') and 2 or 1
end

redis.call('LLEN', queue)  -- a foreign key stops the script here
redis.call('LLEN', bell)
redis.call('HLEN', keys.undo)
redis.call('ZCARD', history)
redis.call('HLEN', progress)
redis.call('HLEN', keys.groups)
redis.call('ZCARD', keys.settled)
local ids = {unpack(ARGV, FIRST_ID)}
ids = {unpack(ids, 1, within_volume(keys, ids))}
for _, id in ipairs(ids) do
  was_here[id] = redis.call('ZSCORE', delayed, id)
  limits[id] = some_are_limited and leave_lines(held_back, delayed, bodies, id) or nil
end
redis.call('ZREM', delayed, unpack(ids))  -- first: needs no memory, so a full server accepts the rest
for n, id in ipairs(ids) do
  answer[n] = cancel(id, KEYS[FIRST_RESULT + n - 1])
end
if #ended > 0 then
  redis.call('HDEL', progress, unpack(ended))
  drop_steps(keys, ended)
end
drop_cancelled(queue, bodies, places)
replace_next(places, held_back, states, {queue, bell, delayed}, limits)
remember(recent, older, request, table.concat(answer))
return answer
