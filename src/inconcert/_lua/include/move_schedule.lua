-- Moves a schedule on: it is done with its instants up to one moment, and looked at again at another, if that is not ''.
local function move_schedule(schedules, line, schedule, until_ms, last, rule, next_ms)
  redis.call('HSET', schedules, schedule, until_ms .. ' ' .. last .. ' ' .. rule)
  if next_ms == '' then
    redis.call('ZREM', line, schedule)
  else
    redis.call('ZADD', line, next_ms, schedule)
  end
end
