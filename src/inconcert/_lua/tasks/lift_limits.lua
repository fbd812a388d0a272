-- tasks/lift_limits: limits and rates that tasks have no longer let the jobs go that wait for them, in order, 100 of each at first.
--
-- KEYS  facts queue bell delayed states places held_back
-- ARGV  name      of the queue
-- ARGV  quiet_ms  number from 0: a limit that a job had which was enqueued since stays in force
-- ARGV  lifted..  '/rINTERVAL_US,BURST_US:RATE' or '/MOST:LIMIT', what is in force from now on, 1 to 50
-- MOVES    delayed: admitted
-- RETURNS  {lifted, ...}: those of which something is known here, whether they stay in force or not
-- TWICE    the same; with a quiet_ms of 0 it lets 100 more of each go
-- COST     O(N log D), N jobs that go, D delayed jobs of the queue
-- @include note_limits
-- @include parse_limits
-- @include server_time
-- @include settle_places
local MOST = 100
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local limited = {places = places, held_back = held_back, states = states, now_us = now_us,
  known = {}, rates = {}, turns = {}, orders = {}, taken = {}, held = {}}

-- @guard queue:list bell:list held_back:zset

local found = {}
for i = LIFTED, #ARGV do
  local text = redis.call('HGET', places, string.match(ARGV[i], ':(%x+)$'))
  if text then
    found[#found + 1] = ARGV[i]
    local at_ms = string.match(text, '^%d+ %d+ (%d+)$') or string.match(text, '^%d+ %d+ %d+ %d+ (%d+) ')
    if now_ms - at_ms >= quiet_ms then
      note_limits(limited, parse_limits({}, ARGV[i]), now_ms, true)
    end
  end
end
for _, known in pairs(limited.known) do
  known.left = MOST
end
settle_places(limited, {queue, bell, delayed, facts = facts}, name)
return found
