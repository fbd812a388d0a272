-- schedules/advance: enqueue the jobs of instants that are due, and move the schedule to its next one.
--
-- KEYS[1]   bodies     hash    id -> 'enqueued_ms envelope'; permanent until the job has ended
-- KEYS[2]   queue      list    ids, the next one first; permanent until claimed
-- KEYS[3]   bell       list    at most one token
-- KEYS[4]   finished   hash    queue name -> jobs that have succeeded or were cancelled; permanent
-- KEYS[5]   schedules  hash    id -> 'SINCE LAST RULE'
-- KEYS[6]   looks      zset    id -> when a worker looks at it next, server ms
-- KEYS[7..] results    string  of each instant's job
-- ARGV[1]   name       of the queue
-- ARGV[2]   schedule   its id
-- ARGV[3]   held_ms    until when this worker holds it, with fractions: nobody else has held it until then
-- ARGV[4]   since_ms   as it was when the worker took it
-- ARGV[5]   until_ms   its last instant that is done with then
-- ARGV[6]   next_ms    the next instant, server ms; or '' if there will be none
-- ARGV[7..] instants   instant_ms, id, envelope: for each instant, in their order, at most 100
-- RETURNS   how many jobs were added | -1 nothing is changed: it was put, paused, deleted or taken by another worker
--           meanwhile, or the clock was set back
-- TWICE     -1, and nothing is changed
-- COST      O(I + log N), I instants, N schedules
-- @include server_time
-- @include enqueue_instants
local FIRST_RESULT, FIRST_INSTANT = 7, 7  -- KEYS of the results; ARGV of the instants

local bodies, queue, bell, finished, schedules, looks = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local name, schedule, held_ms, since_ms, until_ms, next_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local since, last, rule = string.match(redis.call('HGET', schedules, schedule) or '', '^(%d+) (%d+) (%S+)$')
if since ~= since_ms or tonumber(redis.call('ZSCORE', looks, schedule) or '0') ~= tonumber(held_ms) then
  return -1
end
local now_ms = math.floor(server_time() / 1000)
if #ARGV >= FIRST_INSTANT and tonumber(ARGV[#ARGV - 2]) > now_ms then
  return -1
end
local results, instants = {unpack(KEYS, FIRST_RESULT)}, {unpack(ARGV, FIRST_INSTANT)}
local latest, added = enqueue_instants(bodies, queue, bell, finished, name, 0, now_ms, results, instants)
last = latest > 0 and string.format('%.0f', latest) or last
redis.call('HSET', schedules, schedule, until_ms .. ' ' .. last .. ' ' .. rule)
if next_ms == '' then
  redis.call('ZREM', looks, schedule)
else
  redis.call('ZADD', looks, next_ms, schedule)
end
return added
