-- schedules/advance: enqueue the jobs of instants that are due, and move the schedule to its next one.
--
-- KEYS  bodies facts queue bell delayed finished schedules looks looks_in_code results..
--       results: string  of each instant's job: another schedule of its task may have enqueued it
-- ARGV  name        of the queue
-- ARGV  schedule    its id
-- ARGV  is_in_code  flag
-- ARGV  held_ms     until when this worker holds it, with fractions: nobody else has held it until then
-- ARGV  since_ms    as it was when the worker took it
-- ARGV  until_ms    its last instant that is done with then
-- ARGV  next_ms     the next instant, server ms; or '' if there will be none
-- ARGV  instants..  instant_ms, id, envelope: for each instant, in their order, at most 100
-- MOVES    new: enqueued
-- RETURNS  how many jobs were added: those that are not there, and whose results are not kept | -1 nothing is changed: it
--          was put, declared, paused, deleted or taken by another worker meanwhile, or the clock was set back
-- TWICE    -1, and nothing is changed
-- COST     O(I + log N), I instants, N schedules
-- @include server_time
-- @include held_schedule
-- @include move_schedule
-- @include store_job
-- @include put_ready
-- @include ring
local FIELDS = 3

local line = is_in_code and looks_in_code or looks
local last, rule = held_schedule(schedules, line, schedule, since_ms, held_ms)
if not last then
  return -1
end
local now_ms = math.floor(server_time() / 1000)
if #ARGV >= INSTANTS then
  last = ARGV[#ARGV - FIELDS + 1]
  if tonumber(last) > now_ms then
    return -1
  end
end
-- @guard queue:list bell:list delayed:zset facts:hash
local added = {}
for at = INSTANTS, #ARGV, FIELDS do
  local id, envelope, result = ARGV[at + 1], ARGV[at + 2], KEYS[RESULTS + (at - INSTANTS) / FIELDS]
  local has_ended = redis.call('EXISTS', result) == 1
  if not has_ended and store_job(bodies, facts, id, string.format('%.0f ', now_ms), envelope) then
    added[#added + 1] = id
  end
end
if #added > 0 then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
  put_ready(facts, queue, delayed, added, 'RPUSH')
  ring(bell)
end
move_schedule(schedules, line, schedule, until_ms, last, rule, next_ms)
return #added
