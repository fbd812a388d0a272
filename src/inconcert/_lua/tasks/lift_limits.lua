-- tasks/lift_limits: limits and rates that tasks have no longer let the jobs go that wait for them, in order, 100 of each at first.
--
-- KEYS[1]  queue     list    ids, the next one first
-- KEYS[2]  bell      list    at most one token
-- KEYS[3]  delayed   zset    id -> due time, server ms
-- KEYS[4]  states    hash    id -> where it is, if not in its queue
-- KEYS[5]  places    hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua
-- KEYS[6]  held_back zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- ARGV[1]  name      of the queue
-- ARGV[2]  quiet_ms  integer >= 0: a limit that a job had which was enqueued since stays in force
-- ARGV[3..] lifted   '/rINTERVAL_US,BURST_US:RATE' or '/MOST:LIMIT', what is in force from now on, 1 to 50
-- RETURNS  {lifted, ...}: those of which something is known here, whether they stay in force or not
-- TWICE    the same; with a quiet_ms of 0 it lets 100 more of each go
-- COST     O(N log D), N jobs that go, D delayed jobs of the queue
-- @include note_limits
-- @include parse_limits
-- @include server_time
-- @include settle_places
local queue, bell, delayed, states, places, held_back = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local name, quiet_ms, MOST = ARGV[1], tonumber(ARGV[2]), 100
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local limited = {places = places, held_back = held_back, states = states, now_us = now_us,
  known = {}, rates = {}, turns = {}, taken = {}, held = {}}

-- A foreign key stops the script here.
redis.call('LLEN', queue)
redis.call('LLEN', bell)
redis.call('ZCARD', held_back)

local found = {}
for i = 3, #ARGV do
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
settle_places(limited, {queue, bell, delayed}, name)
return found
