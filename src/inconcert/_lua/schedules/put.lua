-- schedules/put: add a schedule, or change one.
--
-- KEYS[1]  schedules         hash  id -> 'SINCE LAST RULE'
-- KEYS[2]  definitions       hash  id -> signed JSON
-- KEYS[3]  looks             zset  id -> when a worker looks at it next, server ms
-- KEYS[4]  paused_schedules  set   ids
-- KEYS[5]  recent            hash  request -> its answer, 120 s
-- KEYS[6]  older             hash  earlier entries of the same; at most 120 s
-- KEYS[7]  result            string  of the job of its one instant, if it has one: a schedule that is put anew runs it again
-- ARGV[1]  id          string
-- ARGV[2]  rule        string without spaces; while it stays the same, no instant is missed or comes again
-- ARGV[3]  since_ms    after which a new rule counts; or '' for now
-- ARGV[4]  definition  signed JSON
-- ARGV[5]  request     string, unique to this call
-- ARGV[6]  changes     channel on which workers hear that there is something to look at
-- RETURNS  1 added | 0 changed
-- TWICE    the same, and nothing is changed, even if it was changed or deleted in between
-- COST     O(log N), N schedules; and the workers that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local schedules, definitions, looks, paused_schedules = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local recent, older, result = KEYS[5], KEYS[6], KEYS[7]
local id, rule, since_ms, definition, request, changes = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local since, last, former = string.match(redis.call('HGET', schedules, id) or '', '^(%d+) (%d+) (%S+)$')
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
