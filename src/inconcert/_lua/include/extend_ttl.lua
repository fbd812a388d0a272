-- Extends a key's TTL to at least this many milliseconds, and never shortens it.
local function extend_ttl(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end
