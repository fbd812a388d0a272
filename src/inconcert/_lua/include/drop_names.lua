-- Drops unique names that no live job has any more, at most so many of those that are to be looked at.
local function drop_names(unique, checks, bodies, dead, now_ms, count)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', checks, '-inf', now_ms, 'LIMIT', 0, count)) do
    if named(unique, bodies, dead, name, now_ms) then
      redis.call('ZADD', checks, now_ms + 3600000, name)
    else
      redis.call('ZREM', checks, name)
      redis.call('HDEL', unique, name)
    end
  end
end
