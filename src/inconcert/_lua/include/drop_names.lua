-- Drops unique names that no live job has any more; checks at most the given number of those that are due.
-- Returns how many were checked.
-- @include live_job_of_name
local function drop_names(unique, checks, bodies, dead, now_ms, count)
  local HOUR_MS = 3600000
  local names = redis.call('ZRANGEBYSCORE', checks, '-inf', now_ms, 'LIMIT', 0, count)
  for _, name in ipairs(names) do
    redis.call('ZREM', checks, name)  -- first: it frees memory, so a full server accepts the rest
    if live_job_of_name(unique, bodies, dead, name, now_ms) then
      redis.call('ZADD', checks, now_ms + HOUR_MS, name)
    else
      redis.call('HDEL', unique, name)
    end
  end
  return #names
end
