-- tasks/enqueue_due: enqueue the jobs of a schedule's due instants, unless already done; and report the time.
--
-- KEYS[1]   bodies    hash    id -> 'enqueued_ms envelope'; permanent until the job has ended
-- KEYS[2]   queue     list    ids, the next one first; permanent until claimed
-- KEYS[3]   bell      list    at most one token
-- KEYS[4]   schedule  string  its last instant that was handled, server ms
-- KEYS[5]   finished  hash    queue name -> jobs that have succeeded or were cancelled; one entry for each queue, permanent
-- KEYS[6..] results   string  of each instant's job: another schedule of its task may have enqueued it
-- ARGV[1]   ttl_ms    integer > 0, how long an unused schedule is remembered
-- ARGV[2]   void_ms   a last instant that is void, because the clock was set back by more than a period since; or ''
-- ARGV[3]   name      of the queue
-- ARGV[4..] instants  instant_ms, id, envelope: for each instant, in their order, at most 100
-- RETURNS   {now_ms, last_ms, added}: the server's clock; the last instant, or now if the schedule is new; how many jobs
--           were added
-- TWICE     adds nothing: the instants are not after the last one
-- COST      O(N), N instants given
-- @include server_time
-- @include enqueue_instants
local FIRST_RESULT, FIRST_INSTANT = 6, 4  -- KEYS of the results; ARGV of the instants

local bodies, queue, bell, schedule, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms = math.floor(server_time() / 1000)
local last_ms = tonumber(redis.call('GET', schedule) or '')
if not last_ms then  -- new; or forgotten by the server, and then the given instants are known to follow it
  last_ms = ARGV[FIRST_INSTANT] and 0 or now_ms
elseif last_ms == tonumber(ARGV[2]) then
  last_ms = math.min(last_ms, now_ms)
end
local results, instants = {unpack(KEYS, FIRST_RESULT)}, {unpack(ARGV, FIRST_INSTANT)}
local latest_ms, added = enqueue_instants(bodies, queue, bell, finished, ARGV[3], last_ms, now_ms, results, instants)
redis.call('SET', schedule, string.format('%.0f', latest_ms), 'PX', ARGV[1])
return {now_ms, latest_ms, added}
