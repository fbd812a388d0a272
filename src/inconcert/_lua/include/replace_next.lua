-- Lets another job be the next of each rate, have the turn of each key, and take a place that is free, of these limits: one
-- that was to do so is cancelled, or comes at another time.  `limits` has the limits of each job by its id; for `queues` see
-- admit_first.lua.
-- @include admit_next
-- @include next_turn
-- @include pace
-- @include read_limit
-- @include read_rate
-- @include server_time
local function replace_next(places, held_back, states, queues, limits)
  local texts, rates, turns, left = {}, {}, {}, {}
  for id, text in pairs(limits) do
    local key = string.match(text, '/s:(%x+)')
    if key and redis.call('HGET', places, '@' .. key) == id then
      redis.call('HDEL', places, '@' .. key)
      turns[text] = true
    end
    local rate = string.match(text, '^/(r[^/]+)')
    texts[rate or ''] = true
    local is_before = rate or string.find(text, '/w', 1, true)  -- it may have left the lines of limits, and waited for the rate
    for limit in string.gmatch(is_before and text or '', '/%d+:(%x+)') do
      if limit ~= key then  -- a turn comes otherwise
        left[limit] = (left[limit] or 0) + 1
      end
    end
  end
  for limit, count in pairs(left) do
    admit_next(places, held_back, states, queues, limit, read_limit(redis.call('HGET', places, limit)), count)
  end
  for text in pairs(turns) do
    next_turn(places, held_back, states, queues, text)
  end
  texts[''] = nil
  local now_us = next(texts) and server_time()
  for text in pairs(texts) do
    read_rate(rates, places, text, 0, now_us)
  end
  for _, rate in pairs(rates) do
    pace(places, held_back, states, queues, rate, now_us)
  end
end
