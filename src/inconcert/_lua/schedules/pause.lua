-- schedules/pause: pause or resume a schedule.
--
-- KEYS  schedules looks looks_in_code declared paused_schedules recent older
-- ARGV  id         string
-- ARGV  is_paused  flag
-- ARGV  request    string, unique to this call
-- ARGV  changes    channel on which workers hear that there is something to look at
-- RETURNS  1 changed | 0 it was already so | -1 there is no such schedule
-- TWICE    the same, and nothing is changed, even if the opposite was requested in between
-- COST     O(log N), N schedules; and the workers that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local rest = string.match(redis.call('HGET', schedules, id) or '', '^%d+( .*)$')
if not rest then
  remember(recent, older, request, -1)
  return -1
end
local line = redis.call('ZSCORE', declared, id) and looks_in_code or looks
publish(changes, id)  -- first: a user's rights may refuse it
answer = redis.call(is_paused and 'SADD' or 'SREM', paused_schedules, id)
if is_paused then
  redis.call('ZREM', line, id)
elseif answer == 1 then  -- instants of the pause do not count as missed
  redis.call('HSET', schedules, id, string.format('%.0f', math.floor(server_time() / 1000)) .. rest)
  redis.call('ZADD', line, 0, id)
end
remember(recent, older, request, answer)
return answer
