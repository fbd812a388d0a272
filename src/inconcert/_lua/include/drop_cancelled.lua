-- Drops ids of cancelled jobs from the front and from the back of their queue, at most 500 from each. What lies between others
-- is skipped when it is claimed, and so is the first id from either end of a job that has limits.
local function drop_cancelled(queue, bodies, places)
  local MOST = 500
  local function count_cancelled(ids, first, step)
    local count = 0
    for i = first, first + step * (#ids - 1), step do
      if redis.call('HEXISTS', bodies, ids[i]) + redis.call('HEXISTS', places, ids[i]) > 0 then
        break
      end
      count = count + 1
    end
    return count
  end
  local front = count_cancelled(redis.call('LRANGE', queue, 0, MOST - 1), 1, 1)
  if front > 0 then
    redis.call('LTRIM', queue, front, -1)
  end
  local last = redis.call('LRANGE', queue, -MOST, -1)
  local back = count_cancelled(last, #last, -1)
  if back > 0 then
    redis.call('LTRIM', queue, 0, -1 - back)
  end
end
