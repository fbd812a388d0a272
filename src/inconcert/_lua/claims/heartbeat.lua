-- claims/heartbeat: say that a worker lives, and learn which do not.
--
-- KEYS  workers news clock idle described claimed
--       claimed: hash, of this worker
-- ARGV  worker  string, unique to this opening of a consumer
-- ARGV  ttl_ms  number > 0
-- ARGV  is_new  1 to begin, 0 to go on
-- ARGV  skip    integer >= 0: how many of the dead to skip, because they could not be recovered
-- ARGV  about   string, for those that list workers; '' for none
-- RETURNS  {alive, at_ms, next_ms, news, count, worker, ...}: 0 if it was presumed dead before; the lease clock; milliseconds
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
local ends = redis.call('ZSCORE', workers, worker)
local place = ends and workers or idle
ends = ends or redis.call('ZSCORE', idle, worker)
local gone = redis.call('ZRANGEBYSCORE', idle, '-inf', at_ms, 'LIMIT', 0, 100)
if #gone > 0 then  -- what holds nothing needs no recovery
  redis.call('ZREM', idle, unpack(gone))
  redis.call('HDEL', described, unpack(gone))
end
local alive = 0
if is_new == '1' or (ends and tonumber(ends) > at_ms) then
  redis.call('ZREM', place, worker)  -- first: it frees memory, so a full server lets the other pass
  redis.call('ZADD', place, at_ms + ttl_ms, worker)
  redis.call('PEXPIRE', idle, HOUR_MS)
  if about ~= '' then
    redis.call('HSET', described, worker, string.format('%.0f ', now_ms) .. about)
    redis.call('PEXPIRE', described, HOUR_MS)
  end
  alive = 1
end
local dead = redis.call('ZRANGEBYSCORE', workers, '-inf', at_ms, 'LIMIT', skip, 10)
local nearest = redis.call('ZRANGEBYSCORE', workers, '(' .. at_ms, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
return {alive, at_ms, nearest and nearest - at_ms or ttl_ms, redis.call('EXISTS', news), count, unpack(dead)}
