-- Drops ids of cancelled jobs from the front of their queue, at most 500; those further back, and
-- the first that has limits, are skipped when claimed.
local function drop_cancelled(queue, bodies, places)
  local count = 0
  for _, id in ipairs(redis.call('LRANGE', queue, 0, 499)) do
    if redis.call('HEXISTS', bodies, id) + redis.call('HEXISTS', places, id) > 0 then
      break
    end
    count = count + 1
  end
  if count > 0 then
    redis.call('LTRIM', queue, count, -1)
  end
end
