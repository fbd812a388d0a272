-- schedules/delete: remove a schedule.
--
-- KEYS[1]  schedules         hash  id -> 'SINCE LAST RULE'
-- KEYS[2]  definitions       hash  id -> signed JSON
-- KEYS[3]  looks             zset  id -> when a worker looks at it next, server ms
-- KEYS[4]  paused_schedules  set   ids
-- KEYS[5]  recent            hash  request -> its answer, 120 s
-- KEYS[6]  older             hash  earlier entries of the same; at most 120 s
-- ARGV[1]  id       string
-- ARGV[2]  request  string, unique to this call
-- RETURNS  1 deleted | 0 there is no such schedule
-- TWICE    the same, and nothing is changed, even if it was put again in between
-- COST     O(log N), N schedules
-- @include recall
-- @include remember
local schedules, definitions, looks, paused_schedules = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local recent, older, id, request = KEYS[5], KEYS[6], ARGV[1], ARGV[2]
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
