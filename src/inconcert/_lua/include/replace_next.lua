-- Lets another job be the next of each rate, have the turn of each key, and take a place that is free, of these limits: one
-- that was to do so is cancelled, or comes at another time.  `limits` has the limits of each job by its id; for `queues` see
-- admit_first.lua.
-- @include admit_next
-- @include next_turn
-- @include pace
-- @include read_rate
-- @include server_time
local function replace_next(places, held_back, states, queues, limits)
  local rates, turns = {}, {}
  for id, text in pairs(limits) do
    local key = string.match(text, '/s:(%x+)')
    if key and redis.call('HGET', places, '@' .. key) == id then
      redis.call('HDEL', places, '@' .. key)
      turns[text] = true
    end
    rates[string.match(text, '^/(r[^/]+)') or ''] = true
    for limit in string.gmatch(text, '/%d+:(%x+)') do
      if limit ~= key then  -- a turn comes otherwise
        admit_next(places, held_back, states, queues, limit, 1)
      end
    end
  end
  for text in pairs(turns) do
    next_turn(places, held_back, states, queues, text)
  end
  rates[''] = nil
  for text in pairs(rates) do
    local now_us = server_time()
    pace(places, held_back, states, queues, read_rate(places, text, now_us), now_us)
  end
end
