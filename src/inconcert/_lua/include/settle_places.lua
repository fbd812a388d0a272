-- Writes which jobs of one queue have taken a place, and which are held back.  For each that has left the queue another comes
-- to it, where places are left, and the next one of its key.  `queues` has its list, its bell or false, and its delayed.
-- Returns how many came; `limited.due_ms` is when the next one comes for which it is too early, if there is one.
-- @include admit_next
-- @include drop_rates
-- @include hold_back
-- @include keep_waits
-- @include limit_text
-- @include next_in_order
-- @include next_turn
-- @include pace
local function settle_places(limited, queues, queue_name)
  local places, held_back, states, taken, came = limited.places, limited.held_back, limited.states, limited.taken, 0
  for limit, known in pairs(limited.known) do
    taken[#taken + 1], taken[#taken + 2] = limit, limit_text(known)
  end
  if #taken > 0 then
    redis.call('HSET', places, unpack(taken))
  end
  keep_waits(limited)
  if #limited.held > 0 then
    hold_back(held_back, queues[3], states, queue_name, limited.held)
  end
  for limit, known in pairs(limited.known) do
    came = came + admit_next(places, held_back, states, queues, limit, known, known.left)
  end
  for _, limits in pairs(limited.turns) do
    came = came + next_turn(places, held_back, states, queues, limits)
  end
  for key, id in pairs(limited.orders) do
    came = came + next_in_order(places, held_back, states, queues, key, id)
  end
  local of_keys = 0
  for _, rate in pairs(limited.rates) do
    of_keys = of_keys + (rate.is_of_key and 1 or 0)
    came = came + pace(places, held_back, states, queues, rate, limited.now_us)
    if rate.due_ms * 1000 > limited.now_us then
      limited.due_ms = math.min(rate.due_ms, limited.due_ms or rate.due_ms)
    end
  end
  if of_keys > 0 then
    drop_rates(places, held_back, limited.now_us, of_keys)
  end
  limited.known, limited.rates, limited.turns, limited.orders, limited.taken, limited.held = {}, {}, {}, {}, {}, {}
  return came
end
