-- The clock of workers' leases, in ms, advanced to now.  It follows the server's clock, but stands
-- still while that is set back, and advances at most two fifths of a lease per reading: a worker that renews its
-- lease every third of it survives any step of the server's clock.
local function lease_clock(clock, workers, ttl_ms, now_ms)
  local HOUR_MS = 3600000
  redis.call('PEXPIRE', clock, HOUR_MS)  -- first: needs no memory, so a full server accepts the rest
  local at_ms, seen_ms = string.match(redis.call('GET', clock) or '', '^(%S+) (%S+)$')
  if at_ms then
    at_ms = at_ms + math.max(0, math.min(now_ms - seen_ms, math.floor(ttl_ms * 0.4)))
  else  -- not read for an hour, at least by the server's clock: each worker has a full lease from now
    local nearest = redis.call('ZRANGE', workers, 0, 0, 'WITHSCORES')[2]
    at_ms = nearest and nearest - ttl_ms or now_ms
  end
  redis.call('SET', clock, string.format('%.0f %.0f', at_ms, now_ms), 'PX', HOUR_MS)
  return at_ms
end
