-- Returns the last instant of a schedule that got a job, 'LAST' or 'LAST,BEFORE', and its rule, if a worker has held it since
-- it was at `since_ms`.
local function held_schedule(schedules, line, schedule, since_ms, held_ms)
  local since, last, rule = string.match(redis.call('HGET', schedules, schedule) or '', '^(%d+) (%S+) (%S+)$')
  if since == since_ms and tonumber(redis.call('ZSCORE', line, schedule) or '0') == tonumber(held_ms) then
    return last, rule
  end
end
