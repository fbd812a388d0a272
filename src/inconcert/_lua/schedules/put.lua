-- schedules/put: add a schedule, or change one.
--
-- KEYS  schedules definitions looks paused_schedules recent older result
--       result: string  of the job of its one instant, if it has one: a schedule that is put anew runs it again
-- ARGV  id          string
-- ARGV  rule        string without spaces; while it stays the same, no instant is missed or comes again
-- ARGV  since_ms    after which a new rule counts; or '' for now
-- ARGV  definition  signed JSON
-- ARGV  request     string, unique to this call
-- ARGV  changes     channel on which workers hear that there is something to look at
-- RETURNS  1 added | 0 changed
-- TWICE    the same, and nothing is changed, even if it was changed or deleted in between
-- COST     O(log N), N schedules; and the workers that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local since, last, former = string.match(redis.call('HGET', schedules, id) or '', '^(%d+) (%S+) (%S+)$')
answer = since and 0 or 1
if former ~= rule then
  since = since_ms ~= '' and since_ms or string.format('%.0f', math.floor(server_time() / 1000))
end
publish(changes, id)  -- first: a user's rights may refuse it
remember(recent, older, request, answer)
if answer == 1 then
  redis.call('DEL', result)
end
redis.call('HSET', schedules, id, since .. ' ' .. (last or '0') .. ' ' .. rule)
redis.call('HSET', definitions, id, definition)
if redis.call('SISMEMBER', paused_schedules, id) == 0 then
  redis.call('ZADD', looks, 0, id)
end
return answer
