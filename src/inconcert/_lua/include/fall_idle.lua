-- Notes that a worker may hold nothing any more: then it is among the idle, for which no key without a TTL remains.
local function fall_idle(workers, idle, claimed, worker)
  local HOUR_MS = 3600000
  local held = redis.call('HLEN', claimed)
  if held > 1 or held > redis.call('HEXISTS', claimed, '#') then
    return
  end
  redis.call('PEXPIRE', claimed, HOUR_MS)
  local ends = redis.call('ZSCORE', workers, worker)
  if ends then
    redis.call('ZREM', workers, worker)
    redis.call('ZADD', idle, ends, worker)
    redis.call('PEXPIRE', idle, HOUR_MS)
  end
end
