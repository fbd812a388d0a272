-- tasks/enqueue_due: enqueue the jobs of due instants of a schedule in code, unless already done; and report the time.
--
-- KEYS  bodies queue bell finished schedules definitions declared paused_schedules results..
--       results: string  of each instant's job: another schedule of its task may have enqueued it
-- ARGV  name        of the queue
-- ARGV  schedule    its id
-- ARGV  rule        string without spaces
-- ARGV  definition  signed JSON
-- ARGV  ttl_ms      integer > 0, how long an unused schedule is remembered
-- ARGV  void_ms     a last instant that is void, because the clock was set back by more than a period since; or ''
-- ARGV  instants..  instant_ms, id, envelope: for each instant, in their order, at most 100
-- RETURNS  {now_ms, since_ms, added}: the server's clock; the last instant that is done with, or now if the schedule is new
--          or paused; how many jobs were added
-- TWICE    adds nothing: the instants are done with
-- COST     O(I + log N), I instants given, N schedules; at most 100 that nobody follows any more are forgotten
-- @include server_time
-- @include enqueue_instants
local MOST, MINUTE_MS = 100, 60000

local results, instants = {unpack(KEYS, RESULTS)}, {unpack(ARGV, INSTANTS)}
local now_ms = math.floor(server_time() / 1000)
local since, last = string.match(redis.call('HGET', schedules, schedule) or '', '^(%d+) (%d+) ')
local since_ms, added = tonumber(since), 0
if not since_ms then  -- new; or forgotten by the server, and then the given instants are known to follow it
  since_ms = #instants > 0 and 0 or now_ms
elseif since_ms == tonumber(void_ms) then
  since_ms = math.min(since_ms, now_ms)
end
if redis.call('SISMEMBER', paused_schedules, schedule) == 1 then
  since_ms = math.max(since_ms, now_ms)
else
  since_ms, added = enqueue_instants(bodies, queue, bell, finished, name, since_ms, now_ms, results, instants)
end
last = added > 0 and string.format('%.0f', since_ms) or last or '0'
redis.call('HSET', schedules, schedule, string.format('%.0f', since_ms) .. ' ' .. last .. ' ' .. rule)
redis.call('HSET', definitions, schedule, definition)
local followed_ms = tonumber(redis.call('ZSCORE', declared, schedule) or '0')
if now_ms - followed_ms >= MINUTE_MS then
  redis.call('ZADD', declared, now_ms, schedule)
end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', declared, '-inf', now_ms - ttl_ms, 'LIMIT', 0, MOST)) do
  redis.call('HDEL', schedules, old)
  redis.call('HDEL', definitions, old)
  redis.call('SREM', paused_schedules, old)
  redis.call('ZREM', declared, old)
end
return {now_ms, since_ms, added}
