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
-- @include notify_watchers
-- @include count_waiting
-- @include publish
-- @include drop_cancelled
-- @include put_ready
-- @include within_volume
-- @include ring
-- @include leave_lines
-- @include replace_next
-- @include head_of
-- @include history_of
-- @include read_facts
-- @include begin_undo
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
local undone  -- with which outcome, see begin_undo.lua

local function cancel(n, id, result, attempts_at)
  local body = redis.call('HGET', bodies, id)
  if not body or redis.call('ZSCORE', dead, id) then
    return 3
  end
  local undoing = undone[n]
  if undoing and undoing ~= '-' then
    return 0
  end
  local state, about = string.match(redis.call('HGET', states, id) or '', '^(%S+) (.*)$')
  if state == 'delayed' and not was_here[id] then
    return 4
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
    begin_undo(keys, id, 'cancelled ')
    -- @each on_back(keys, id, false)
    redis.call('HDEL', pending, id)
    redis.call('HDEL', unfollowed, id)
    if state == 'waiting' or was_here[id] then  -- or it lay in its queue, among those of its priority
      put_ready(facts, queue, delayed, {id}, 'LPUSH')
      ring(bell)
    end
    return 0
  end
  local _, _, text = head_of(some_are_limited and state ~= 'waiting' and state ~= 'delayed' and body)
  local key = text and string.match(text, '/[sog]:(%x+)')
  local has_turn = key and redis.call('HGET', places, '@' .. key) == id
  local has_limits = has_turn or text and some_are_held_back
  local is_own = not string.find(id, '[.@]')  -- its caller chose it, and it may come again: it does not stay behind
  if is_own and not was_here[id] and not has_limits and (not state or state == 'cancelling') and redis.call('LREM', queue, 0, id) == 0 then
    return 4
  end
  local about = history_of(body)
  local known = about and read_facts(redis.call('HGET', facts, id))
  local attempts = about and known.failures + known.crashes
  -- Its id stays in its queue: without a body, it is not run.
  for _, key in ipairs({bodies, states, facts, pending, unfollowed}) do
    redis.call('HDEL', key, id)
  end
  if has_limits then
    redis.call('HSET', places, id, '-' .. text)  -- it may have been about to run: who claims it lets others in
    flag(facts, id, 'l')
    if was_here[id] and state ~= 'delayed' then  -- it lay among those of its priority
      redis.call('LPUSH', queue, id)
      ring(bell)
    end
  end
  redis.call('SET', result, 'cancelled ', 'PX', ttl_ms)
  notify_watchers(watchers, inboxes, id)
  ended[#ended + 1] = {id = id, is_gone = true, outcome = 'cancelled ', about = about, attempts = attempts, began_ms = '', n = n,
    is_left = has_turn, attempts_at = attempts_at, kept_ms = tonumber(ttl_ms)}
  return 1
end

-- @guard queue:list bell:list on_back on_end
local ids = {unpack(ARGV, IDS)}
local first_attempts = RESULTS + #ids
ids = {unpack(ids, 1, within_volume(keys, ids))}
undone = redis.call('HMGET', keys.undo, unpack(ids))
local leave = {''}  -- never empty
for n, id in ipairs(ids) do
  if not undone[n] or undone[n] == '-' then  -- one that is undone stays where it is
    was_here[id] = redis.call('ZSCORE', delayed, id)
    limits[id] = some_are_limited and leave_lines(held_back, delayed, bodies, id) or nil
    leave[#leave + 1] = id
  end
end
redis.call('ZREM', delayed, unpack(leave))  -- first: needs no memory, so a full server accepts the rest
for n, id in ipairs(ids) do
  answer[n] = cancel(n, id, KEYS[RESULTS + n - 1], KEYS[first_attempts + n - 1])
end
if #ended > 0 then
  -- @each on_end(keys, ended, inboxes, {queue, bell, delayed, facts = facts})
end
for _, job in ipairs(ended) do
  answer[job.n] = job.is_news and 2 or 1
end
drop_cancelled(queue, bodies, places)
replace_next(places, held_back, states, {queue, bell, delayed, facts = facts}, limits)
remember(recent, older, request, table.concat(answer))
return answer
