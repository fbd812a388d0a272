-- Keeps the answer to a request, so that a second run gives the same: for at least 60 s, if fewer than 10,000 come after it.
-- `recent` lives for 120 s; half-way, or when full, it replaces `older`, and a new one begins.
local function remember(recent, older, request, answer)
  local FEW = 16  -- with more it is a table: see tasks/enqueue_plain
  local life = redis.call('PTTL', recent)
  local count = life >= 60000 and redis.call('HLEN', recent) or 0
  if count >= 10000 or life >= 0 and life < 60000 then
    redis.call('RENAME', recent, older)
    life = -2
  end
  redis.call('HSET', recent, request, answer)
  if count == FEW then
    local long = string.rep('#', 65)
    redis.call('HSET', recent, long, '')
    redis.call('HDEL', recent, long)
  end
  if life < 0 then
    redis.call('PEXPIRE', recent, 120000)
  end
end
