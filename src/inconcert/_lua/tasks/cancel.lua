-- tasks/cancel: cancel jobs: they will not run, or are stopped.
--
-- KEYS  bodies states dead facts watchers queue delayed parents children outcomes news waiting pending
-- KEYS  unfollowed recent older steps stepped groups settled messages received awaited undo bell places held_back
-- KEYS  history progress results..
--       progress: hash  id -> 'NUMBER JSON': its progress
--       results: string  of each job, in the same order: 'succeeded JSON' | 'cancelled '
-- ARGV  ttl_ms   integer > 0, how long the fact that they were cancelled is kept
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  request  string, unique to this call
-- ARGV  ids..    of the jobs, 1 to 250
-- MOVES    queue: cancelled; delayed: cancelled undo admitted; waiting: cancelled undo
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
-- @include read_facts
-- @include forget_attempts
-- @include flag
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
  local undoing = redis.call('HGET', keys.undo, id)
  if undoing and undoing ~= '-' then
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
  if undoing then
    redis.call('HSET', keys.undo, id, 'cancelled ')
    forget_attempts(facts, id)
    flag(facts, id, 'v')
    for _, key in ipairs({states, progress, pending, unfollowed, keys.awaited}) do
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
  local about = history_of(body)
  local known = about and read_facts(redis.call('HGET', facts, id))
  local attempts = about and known.failures + known.crashes
  -- Its id stays in its queue: without a body, it is not run.
  for _, key in ipairs({bodies, states, facts, pending, unfollowed}) do
    redis.call('HDEL', key, id)
  end
  if has_turn or text and some_are_held_back then
    redis.call('HSET', places, id, '-' .. text)  -- it may have been about to run: who claims it lets others in
    flag(facts, id, 'l')
  end
  ended[#ended + 1] = id
  redis.call('SET', result, 'cancelled ', 'PX', ttl_ms)
  notify_watchers(watchers, inboxes, id)
  record_end(history, about, id, 'cancelled ', '', attempts)
  return note_end(keys, id, 'cancelled ') and 2 or 1
end

-- @guard queue:list bell:list keys.undo:hash history:zset progress:hash keys.groups:hash keys.settled:zset
local ids = {unpack(ARGV, IDS)}
ids = {unpack(ids, 1, within_volume(keys, ids))}
for _, id in ipairs(ids) do
  was_here[id] = redis.call('ZSCORE', delayed, id)
  limits[id] = some_are_limited and leave_lines(held_back, delayed, bodies, id) or nil
end
redis.call('ZREM', delayed, unpack(ids))  -- first: needs no memory, so a full server accepts the rest
for n, id in ipairs(ids) do
  answer[n] = cancel(id, KEYS[RESULTS + n - 1])
end
if #ended > 0 then
  redis.call('HDEL', progress, unpack(ended))
  drop_steps(keys, ended)
end
drop_cancelled(queue, bodies, places)
replace_next(places, held_back, states, {queue, bell, delayed}, limits)
remember(recent, older, request, table.concat(answer))
return answer
