-- Puts a token on a bell unless one is there: it wakes one idle consumer, now or as soon as there is one within a minute.
local function ring(bell)
  if redis.call('LLEN', bell) == 0 then
    redis.call('RPUSH', bell, '1')
    redis.call('PEXPIRE', bell, 60000)
  end
end
