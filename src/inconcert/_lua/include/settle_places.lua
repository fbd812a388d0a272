-- Writes who has taken a place and who is held back: delayed without end, and in the line of a limit, by when it was enqueued.
-- For each job that has left a queue another comes to its front, where places are left: they are added to `ready`, the number
-- of jobs in each queue.  `keys` has the list of a queue at the same index, then its bell and delayed.  Returns how many came;
-- `limited.due_ms` is when the next one comes for which it is too early, if there is one.
-- @include admit_next
-- @include pace
local function settle_places(limited, ready, keys)
  local HELD_BACK_MS = 4e15  -- after every time at which something may be due
  local taken, delayed, states, lines, moved = limited.taken, {}, {}, {}, 0
  for limit, known in pairs(limited.known) do
    if known.count > 0 then
      taken[#taken + 1], taken[#taken + 2] = limit, known.count
    end
  end
  if #taken > 0 then
    redis.call('HSET', limited.places, unpack(taken))
  end
  for n, held in ipairs(limited.held) do
    local due = delayed[held.at] or {}
    due[#due + 1], due[#due + 2] = string.format('%.0f', HELD_BACK_MS + held.put_ms), held.id
    states[2 * n - 1], states[2 * n] = held.id, 'delayed ' .. held.queue_name
    lines[2 * n - 1], lines[2 * n] = 0, string.format('%s %014.0f %s', held.limit, held.put_ms, held.id)
    delayed[held.at] = due
  end
  if #lines > 0 then
    redis.call('HSET', limited.states, unpack(states))
    redis.call('ZADD', limited.held_back, unpack(lines))
  end
  for at, due in pairs(delayed) do
    redis.call('ZADD', keys[at + 2], unpack(due))
  end
  for limit, known in pairs(limited.known) do
    local queues = {keys[known.at], false, keys[known.at + 2]}
    local came = admit_next(limited.places, limited.held_back, limited.states, queues, limit, known.most, known.left)
    ready[known.at], moved = ready[known.at] + came, moved + came
  end
  for _, rate in pairs(limited.rates) do
    local queues = {keys[rate.at], false, keys[rate.at + 2]}
    local came = pace(limited.places, limited.held_back, limited.states, queues, rate, limited.now_us)
    ready[rate.at], moved = ready[rate.at] + came, moved + came
    if rate.due_ms * 1000 > limited.now_us then
      limited.due_ms = math.min(rate.due_ms, limited.due_ms or rate.due_ms)
    end
  end
  return moved
end
