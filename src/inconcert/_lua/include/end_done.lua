-- Ends jobs that are done, or were cancelled while they ran: those that their worker holds at these positions.
-- `given` has the id and position of each, result and ttl_ms, and with plugs its unique name, from `first` on; `results` the keys
-- of their results, in the same order.  Without plugs, the first ones may have only id and position there, and `more` has
-- the `result` and `ttl_ms` of these.  With plugs, it has in `queues` the list, bell and delayed of each queue from
-- which those come that have limits, in `histories` 'NUMBER ENQUEUED_MS MOST:TASK[+],' of each that is to be in a history, and
-- in `attempts` a key for those of each of which some failed, by its number.
-- Returns for each 1, 2 if others are to be told of its end, or 0 if it was not held; without plugs 3 if it has more than
-- waiters: of that nothing is changed.
-- @include fall_idle
-- @only jobs
-- @include history_of
-- @end
local function end_done(keys, inboxes, worker, given, first, results, more)
  local SHORTEST_TTL_MS, WAITERS_TTL_MS = 1000, 60000  -- a result that is kept for less is kept so long for those that wait

  local all, positions, ends = {}, {}, {}  -- ends: where in `given` the result of each is, if it has its own
  -- @only plain
  local FIELDS = 4
  for n = 1, (FIELDS * #results - (#given - first + 1)) / 2 do
    all[n], positions[n], first = given[first], given[first + 1], first + 2
  end
  -- @end
  -- @only jobs
  local FIELDS = 5
  -- @end
  for i = first, #given, FIELDS do
    local n = #all + 1
    all[n], positions[n], ends[n] = given[i], given[i + 1], i + 2
  end
  local facts_of = redis.call('EXISTS', keys.facts) == 1 and redis.call('HMGET', keys.facts, unpack(all)) or {}
  local answer, held, counts = {}, 0, {}  -- counts: ' attempt since queue-name' -> how many
  local claims, rest = redis.call('HMGET', keys.claimed, unpack(all)), ''
  for n, claim in ipairs(claims) do
    local position = positions[n]
    local is_held = claim == position .. rest  -- most of those that end together were claimed together
    if claim and not is_held and string.match(claim, '^%d+') == position then
      is_held, rest = true, string.sub(claim, #position + 1)
    end
    answer[n] = is_held and 1 or 0
    -- @only plain
    if is_held and facts_of[n] and string.find(facts_of[n], '^w*[^w ]') then
      is_held, answer[n] = false, 3
    end
    -- @end
    if is_held then
      counts[rest] = (counts[rest] or 0) + 1
      held = held + 1
    end
  end
  local ids, numbers = all, {}  -- most of the time it held all; otherwise of each that it held its number among all
  if held < #all then
    ids = {}
    for n, id in ipairs(all) do
      if answer[n] == 1 then
        ids[#ids + 1], numbers[#ids + 1] = id, n
      end
    end
  end
  if held == 0 then
    return answer
  end
  -- @only jobs
  -- A foreign key stops the script here.
  -- @guard on_release on_end
  local queues = more.queues
  for i = 1, #queues, 3 do
    redis.call('LLEN', queues[i])
    redis.call('LLEN', queues[i + 1])
    redis.call('ZCARD', queues[i + 2])
  end
  local about = {}  -- read while their bodies are there
  for n, text in string.gmatch(more.histories, '(%d+) ([^,]+),') do
    n = tonumber(n)
    about[n] = string.sub(text, -1) == '+' and history_of(redis.call('HGET', keys.bodies, all[n])) or text
  end
  -- @end

  redis.call('HDEL', keys.claimed, unpack(ids))  -- first: it frees memory
  redis.call('HDEL', keys.bodies, unpack(ids))
  redis.call('HDEL', keys.states, unpack(ids))
  if next(facts_of) then
    redis.call('HDEL', keys.facts, unpack(ids))
  end
  fall_idle(keys.workers, keys.claimed, worker)
  for about, count in pairs(counts) do
    redis.call('HINCRBY', keys.finished, string.match(about, '^ %d+ %d+ (.*)$'), count)
  end
  -- @only jobs
  local kept_ms = {}
  -- @end
  for k, id in ipairs(ids) do
    local n = numbers[k] or k
    local i, result, ttl_ms = ends[n], more.result, more.ttl_ms
    if i then
      result, ttl_ms = given[i], given[i + 1]
    end
    if facts_of[n] and string.find(facts_of[n], '^%l*w') then
      -- @block notify_watchers
      if notify_watchers(keys.watchers, inboxes, id) and tonumber(ttl_ms) < SHORTEST_TTL_MS then
        ttl_ms = WAITERS_TTL_MS
      end
    end
    if ttl_ms ~= '0' and result ~= '' then
      redis.call('SET', results[n], result, 'PX', ttl_ms)
    end
    -- @only jobs
    kept_ms[k] = result ~= '' and tonumber(ttl_ms) or 0
    -- @end
  end
  -- @only jobs
  local jobs = {}
  for k, id in ipairs(ids) do
    local n = numbers[k] or k
    local attempts, began_ms = string.match(claims[n], '^%d+ (%d+) (%d+)')
    local i = ends[n]
    local outcome = given[i] ~= '' and given[i] or 'succeeded null'
    jobs[k] = {id = id, is_gone = true, outcome = outcome, name = given[i + 2], about = about[n], attempts = attempts,
      began_ms = began_ms, attempts_at = more.attempts[n], kept_ms = kept_ms[k]}
  end
  -- @end
  -- @each on_release(keys, ids, queues)
  -- @each on_end(keys, jobs, inboxes, queues)
  -- @only jobs
  for k, job in ipairs(jobs) do
    answer[numbers[k] or k] = job.is_news and 2 or 1
  end
  -- @end
  return answer
end
