-- schedules/delete: remove a schedule.
--
-- KEYS  schedules definitions looks paused_schedules recent older
-- ARGV  id       string
-- ARGV  request  string, unique to this call
-- RETURNS  1 deleted | 0 there is no such schedule
-- TWICE    the same, and nothing is changed, even if it was put again in between
-- COST     O(log N), N schedules
-- @include recall
-- @include remember
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = redis.call('HDEL', schedules, id)
redis.call('HDEL', definitions, id)
redis.call('ZREM', looks, id)
redis.call('SREM', paused_schedules, id)
remember(recent, older, request, answer)
return answer
