-- claims/heartbeat: say that a worker lives, and learn which do not.
--
-- KEYS  workers news clock alive described claimed
--       claimed: hash, of this worker
-- ARGV  worker  string, unique to this opening of a consumer
-- ARGV  ttl_ms  number > 0
-- ARGV  is_new  1 to begin, 0 to go on
-- ARGV  skip    integer >= 0: how many of the dead to skip, because they could not be recovered
-- ARGV  about   string, for those that list workers; '' for none
-- RETURNS  {is_alive, at_ms, next_ms, news, count, worker, ...}: 0 if it was presumed dead before; the lease clock; milliseconds
--          until another may be; 1 if there are news to be passed on; how many jobs it holds, as the server knows it; up to 10
--          workers that are dead and whose jobs are to be recovered
-- TWICE    the same, counted from the second run
-- COST     O(log N), N workers
-- @include server_time
-- @include lease_clock
local HOUR_MS = 3600000
local count = redis.call('HLEN', claimed) - redis.call('HEXISTS', claimed, '#')
local now_ms = math.floor(server_time() / 1000)
local at_ms = lease_clock(clock, workers, ttl_ms, now_ms)
local ends = redis.call('ZSCORE', workers, worker) or redis.call('ZSCORE', alive, worker)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', at_ms, 'LIMIT', 0, 100)) do
  redis.call('ZREM', alive, gone)
  if not redis.call('ZSCORE', workers, gone) then  -- what holds nothing needs no recovery
    redis.call('HDEL', described, gone)
  end
end
local is_alive = 0
if is_new == '1' or (ends and tonumber(ends) > at_ms) then
  redis.call('ZADD', alive, at_ms + ttl_ms, worker)
  redis.call('ZADD', workers, 'XX', at_ms + ttl_ms, worker)
  redis.call('PEXPIRE', alive, HOUR_MS)
  if about ~= '' then
    redis.call('HSET', described, worker, string.format('%.0f ', now_ms) .. about)
    redis.call('PEXPIRE', described, HOUR_MS)
  end
  is_alive = 1
end
local dead = redis.call('ZRANGEBYSCORE', workers, '-inf', at_ms, 'LIMIT', skip, 10)
local nearest = redis.call('ZRANGEBYSCORE', workers, '(' .. at_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
return {is_alive, at_ms, nearest and nearest - at_ms or ttl_ms, redis.call('EXISTS', news), count, unpack(dead)}
