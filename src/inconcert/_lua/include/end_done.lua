-- Ends jobs, or items, that are done, or were cancelled while they ran: those that their worker holds at these places.
-- `jobs` has the id, place, result, ttl_ms and unique name of each, from `first` on; `results` the keys of their results, in
-- the same order.  `queues` has the list, bell and delayed of each queue from which those come that have limits; `histories`
-- the number and 'ENQUEUED_MS MOST:TASK' of each that is to be in a history, as 'NUMBER ENQUEUED_MS MOST:TASK,'.
-- Returns for each 1, 2 if others are to be told of its end, or 0 if it was not held.
-- @include drop_steps
-- @include free_places
-- @include fall_idle
-- @include notify_watchers
-- @include note_end
-- @include wake_first_putter
-- @include tell_joiners
-- @include record_end
local function end_done(keys, inboxes, worker, jobs, first, results, queues, histories)
  local FIELDS = 5
  local SHORTEST_TTL_MS, WAITERS_TTL_MS = 1000, 60000  -- a result that is kept for less is kept so long for those that wait
  local ENDED_WITH_DEPENDENTS = 2

  local given, done, ids, held, answer, counts, recorded = {}, {}, {}, 0, {}, {}, {}
  for i = first, #jobs, FIELDS do
    given[1 + (i - first) / FIELDS] = jobs[i]
  end
  local claims = redis.call('HMGET', keys.claimed, unpack(given))
  for n, claim in ipairs(claims) do
    local i = first + FIELDS * (n - 1)
    local place, queue_name = string.match(claim or '', '^(%d+) %d+ %d+ (.*)$')
    local is_held = place == jobs[i + 1]
    answer[n] = is_held and 1 or 0
    if is_held then
      counts[queue_name] = (counts[queue_name] or 0) + 1
      held = held + 1
      done[held], ids[held] = i, given[n]
    end
  end
  if held == 0 then
    return answer
  end
  local some_are_grouped = string.find(table.concat(ids), '~', 1, true)  -- as in group_of.lua
  if some_are_grouped then
    redis.call('HLEN', keys.groups)  -- a foreign key stops the script here
    redis.call('ZCARD', keys.settled)
  end

  for i = 1, #queues, 3 do
    redis.call('LLEN', queues[i])
    redis.call('LLEN', queues[i + 1])
    redis.call('ZCARD', queues[i + 2])
    redis.call('HLEN', keys.places)
    redis.call('ZCARD', keys.held_back)
  end
  if histories ~= '' then
    redis.call('ZCARD', keys.history)
  end
  for n, about in string.gmatch(histories, '(%d+) ([^,]+),') do
    recorded[tonumber(n)] = about
  end

  for _, key in ipairs({keys.claimed, keys.bodies, keys.states}) do  -- first: it frees memory
    redis.call('HDEL', key, unpack(ids))
  end
  for _, key in ipairs({keys.facts, keys.progress}) do
    if redis.call('EXISTS', key) == 1 then
      redis.call('HDEL', key, unpack(ids))
    end
  end
  drop_steps(keys, ids)
  if #queues > 0 then
    free_places(keys.places, keys.held_back, keys.states, queues, ids)
  end
  fall_idle(keys.workers, keys.idle, keys.claimed, worker)
  for queue_name, count in pairs(counts) do
    if queue_name ~= '' then
      redis.call('HINCRBY', keys.finished, queue_name, count)
    end
  end
  wake_first_putter(keys.line, inboxes)
  if keys.joiners then
    tell_joiners(keys.joiners, keys.bodies, keys.dead, inboxes)
  end
  local some_are_watched = redis.call('EXISTS', keys.watchers) == 1
  local some_are_related = redis.call('EXISTS', keys.parents, keys.children) > 0
  for _, i in ipairs(done) do
    local n = 1 + (i - first) / FIELDS
    local id, result, ttl_ms, name = jobs[i], jobs[i + 2], tonumber(jobs[i + 3]), jobs[i + 4]
    local is_watched = some_are_watched and notify_watchers(keys.watchers, inboxes, id)
    if is_watched and ttl_ms < SHORTEST_TTL_MS then
      ttl_ms = WAITERS_TTL_MS
    end
    if ttl_ms > 0 and result ~= '' then
      redis.call('SET', results[n], result, 'PX', ttl_ms)
    end
    if name ~= '' and redis.call('HGET', keys.unique, name) == id .. ' 0' then
      redis.call('HDEL', keys.unique, name)
      redis.call('ZREM', keys.checks, name)
    end
    local outcome = result ~= '' and result or 'succeeded null'
    if recorded[n] then
      local attempt, since_ms = string.match(claims[n], '^%d+ (%d+) (%d+)')
      record_end(keys.history, recorded[n], id, outcome, since_ms, attempt)
    end
    if (some_are_related or some_are_grouped) and note_end(keys, id, outcome) then
      answer[n] = ENDED_WITH_DEPENDENTS
    end
  end
  return answer
end
