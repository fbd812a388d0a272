-- Puts a job of a priority from 0 to 9, but 5, among the ready ones of its queue: behind those of its priority, or with 'LPUSH'
-- before them.  They lie in `delayed`, before all that is due at a time: each priority has scores of its own below 0, and what
-- is in the list of the queue comes between those of 4 and 6.
local function rank(delayed, id, priority, push)
  local WIDTH = 1e14
  local first = (priority - 10) * WIDTH
  local from, to = string.format('%.0f', first), string.format('(%.0f', first + WIDTH)
  local found
  if push == 'LPUSH' then
    found = redis.call('ZRANGEBYSCORE', delayed, from, to, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  else
    found = redis.call('ZREVRANGEBYSCORE', delayed, to, from, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  end
  local score = found and found + (push == 'LPUSH' and -1 or 1) or first + WIDTH / 2
  redis.call('ZADD', delayed, string.format('%.0f', score), id)
end
