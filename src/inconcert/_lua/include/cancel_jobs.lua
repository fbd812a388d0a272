-- Cancels jobs of this partition: those that run are marked, and their workers are to stop them; others end at once, or are to be
-- undone.  `queues` has the list, bell and delayed of the queue in which they are, `results` the keys of their results, in
-- their order, and `kept` likewise one for the attempts of each.  Returns for each what `tasks/cancel` answers.
-- @include notify_watchers
-- @include count_waiting
-- @include publish
-- @include drop_cancelled
-- @include put_ready
-- @include ring
-- @include leave_lines
-- @include replace_next
-- @include head_of
-- @include history_of
-- @include read_facts
-- @include begin_undo
-- @include flag
local function cancel_jobs(keys, queues, ids, results, kept, inboxes, ttl_ms)
  local answer, ended, limits, was_here = {}, {}, {}, {}
  local queue, bell, delayed = unpack(queues)
  local some_are_held_back = redis.call('ZCARD', keys.held_back) > 0
  local some_are_limited = redis.call('HLEN', keys.places) > 0 or some_are_held_back
  local undone = redis.call('HMGET', keys.undo, unpack(ids))  -- with which outcome, see begin_undo.lua

  local function cancel(n, id)
    local body = redis.call('HGET', keys.bodies, id)
    if not body or redis.call('ZSCORE', keys.dead, id) then
      return 3
    end
    local undoing = undone[n]
    if undoing and undoing ~= '-' then
      return 0
    end
    local state, about = string.match(redis.call('HGET', keys.states, id) or '', '^(%S+) (.*)$')
    if state == 'delayed' and not was_here[id] then
      return 4
    end
    if (state == 'running' or state == 'cancelling') and about ~= '' then
      redis.call('HSET', keys.states, id, 'cancelling ' .. about)
      publish(inboxes .. string.match(about, '^(.*)%.'), about .. ' cancelled ' .. id)
      return 0
    end
    if state == 'waiting' then
      count_waiting(keys.waiting, string.match(about, '^%S+ (.*)$'), -1)
    end
    if undoing then
      begin_undo(keys, id, 'cancelled ')
      -- @each on_back(keys, id, false)
      redis.call('HDEL', keys.pending, id)
      redis.call('HDEL', keys.unfollowed, id)
      if state == 'waiting' or was_here[id] then  -- or it lay in its queue, among those of its priority
        put_ready(keys.facts, queue, delayed, {id}, 'LPUSH')
        ring(bell)
      end
      return 0
    end
    local _, _, text = head_of(some_are_limited and state ~= 'waiting' and state ~= 'delayed' and body)
    local key = text and string.match(text, '/[sog]:(%x+)')
    local has_turn = key and redis.call('HGET', keys.places, '@' .. key) == id
    local has_limits = has_turn or text and some_are_held_back
    local is_own = not string.find(id, '[.@]')  -- its caller chose it, and it may come again: it does not stay behind
    if is_own and not was_here[id] and not has_limits and (not state or state == 'cancelling') and redis.call('LREM', queue, 0, id) == 0 then
      return 4
    end
    local about = history_of(body)
    local known = about and read_facts(redis.call('HGET', keys.facts, id))
    local attempts = about and known.failures + known.crashes
    -- Its id stays in its queue: without a body, it is not run.
    for _, key in ipairs({keys.bodies, keys.states, keys.facts, keys.pending, keys.unfollowed}) do
      redis.call('HDEL', key, id)
    end
    if has_limits then
      redis.call('HSET', keys.places, id, '-' .. text)  -- it may have been about to run: who claims it lets others in
      flag(keys.facts, id, 'l')
      if was_here[id] and state ~= 'delayed' then  -- it lay among those of its priority
        redis.call('LPUSH', queue, id)
        ring(bell)
      end
    end
    redis.call('SET', results[n], 'cancelled ', 'PX', ttl_ms)
    notify_watchers(keys.watchers, inboxes, id)
    ended[#ended + 1] = {id = id, is_gone = true, outcome = 'cancelled ', about = about, attempts = attempts, began_ms = '', n = n,
      is_left = has_turn, attempts_at = kept[n], kept_ms = tonumber(ttl_ms)}
    return 1
  end

  local leave = {''}  -- never empty
  for n, id in ipairs(ids) do
    if not undone[n] or undone[n] == '-' then  -- one that is undone stays where it is
      was_here[id] = redis.call('ZSCORE', delayed, id)
      limits[id] = some_are_limited and leave_lines(keys.held_back, delayed, keys.bodies, id) or nil
      leave[#leave + 1] = id
    end
  end
  redis.call('ZREM', delayed, unpack(leave))  -- first: needs no memory, so a full server accepts the rest
  for n, id in ipairs(ids) do
    answer[n] = cancel(n, id)
  end
  if #ended > 0 then
    -- @each on_end(keys, ended, inboxes, queues)
  end
  for _, job in ipairs(ended) do
    answer[job.n] = job.is_news and 2 or 1
  end
  drop_cancelled(queue, keys.bodies, keys.places)
  replace_next(keys.places, keys.held_back, keys.states, queues, limits)
  return answer
end
