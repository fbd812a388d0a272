-- schedules/advance: enqueue the jobs of instants that are due, and move the schedule to its next one.
--
-- KEYS  bodies queue bell finished schedules looks results..
--       results: string  of each instant's job
-- ARGV  name        of the queue
-- ARGV  schedule    its id
-- ARGV  held_ms     until when this worker holds it, with fractions: nobody else has held it until then
-- ARGV  since_ms    as it was when the worker took it
-- ARGV  until_ms    its last instant that is done with then
-- ARGV  next_ms     the next instant, server ms; or '' if there will be none
-- ARGV  instants..  instant_ms, id, envelope: for each instant, in their order, at most 100
-- RETURNS  how many jobs were added | -1 nothing is changed: it was put, paused, deleted or taken by another worker
--          meanwhile, or the clock was set back
-- TWICE    -1, and nothing is changed
-- COST     O(I + log N), I instants, N schedules
-- @include server_time
-- @include enqueue_instants
local since, last, rule = string.match(redis.call('HGET', schedules, schedule) or '', '^(%d+) (%d+) (%S+)$')
if since ~= since_ms or tonumber(redis.call('ZSCORE', looks, schedule) or '0') ~= tonumber(held_ms) then
  return -1
end
local now_ms = math.floor(server_time() / 1000)
if #ARGV >= INSTANTS and tonumber(ARGV[#ARGV - 2]) > now_ms then
  return -1
end
local results, instants = {unpack(KEYS, RESULTS)}, {unpack(ARGV, INSTANTS)}
local latest, added = enqueue_instants(bodies, queue, bell, finished, name, 0, now_ms, results, instants)
last = latest > 0 and string.format('%.0f', latest) or last
redis.call('HSET', schedules, schedule, until_ms .. ' ' .. last .. ' ' .. rule)
if next_ms == '' then
  redis.call('ZREM', looks, schedule)
else
  redis.call('ZADD', looks, next_ms, schedule)
end
return added
