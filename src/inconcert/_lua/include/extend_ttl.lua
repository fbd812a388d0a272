-- Makes a key live for at least this many milliseconds more, and never shorter than it would.
local function extend_ttl(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end
