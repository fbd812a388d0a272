-- Makes a key live for at least this many milliseconds more, and never shorter than it would.
local function outlive(key, ms)
  if redis.call('PTTL', key) < ms then
    redis.call('PEXPIRE', key, ms)
  end
end
