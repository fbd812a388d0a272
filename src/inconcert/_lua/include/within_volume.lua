-- How many of these jobs, from the first on, one script may drop: at least one, and no more than have 2,000 steps and messages
-- together, because each of these is a field to delete.
local function within_volume(keys, ids)
  local MOST = 2000
  if redis.call('EXISTS', keys.stepped, keys.received) == 0 then
    return #ids
  end
  local volume = 0
  for n, id in ipairs(ids) do
    local messages = string.match(redis.call('HGET', keys.received, id) or '', '^%d+')
    volume = volume + tonumber(redis.call('HGET', keys.stepped, id) or 0) + tonumber(messages or 0)
    if volume > MOST and n > 1 then
      return n - 1
    end
  end
  return #ids
end
