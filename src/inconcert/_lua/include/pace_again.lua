-- Lets another job of each of these rates be the next: one that may have been is cancelled, or comes at another time.
-- For `queues` see admit_first.lua.
-- @include read_rate
-- @include pace
-- @include server_time
local function pace_again(places, held_back, states, queues, rates)
  for text in pairs(rates) do
    if text ~= '' then
      local now_us = server_time()
      pace(places, held_back, states, queues, read_rate(places, text, now_us), now_us)
    end
  end
end
