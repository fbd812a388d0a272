-- Notes that a worker may hold nothing any more: then no key without a TTL remains of it.
local function fall_idle(workers, claimed, worker)
  local HOUR_MS = 3600000
  if redis.call('HLEN', claimed) == 1 then  -- its last claim is left
    redis.call('PEXPIRE', claimed, HOUR_MS)
    redis.call('ZREM', workers, worker)
  end
end
