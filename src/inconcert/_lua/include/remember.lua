-- Keeps the answer to a request, so that a second run gives the same: for at least 60 s, if fewer than 10,000 come after it.
-- `recent` lives for 120 s; half-way, or when full, it replaces `older`, and a new one begins.
local function remember(recent, older, request, answer)
  local life = redis.call('PTTL', recent)
  if life >= 0 and (life < 60000 or redis.call('HLEN', recent) >= 10000) then
    redis.call('RENAME', recent, older)
    life = -2
  end
  redis.call('HSET', recent, request, answer)
  if life < 0 then
    redis.call('PEXPIRE', recent, 120000)
  end
end
