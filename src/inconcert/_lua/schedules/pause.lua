-- schedules/pause: pause or resume a schedule.
--
-- KEYS[1]  schedules         hash  id -> 'SINCE LAST RULE'
-- KEYS[2]  looks             zset  id -> when a worker looks at it next, server ms
-- KEYS[3]  declared          zset  id -> when a worker followed it last, server ms; of schedules in code
-- KEYS[4]  paused_schedules  set   ids
-- KEYS[5]  recent            hash  request -> its answer, 120 s
-- KEYS[6]  older             hash  earlier entries of the same; at most 120 s
-- ARGV[1]  id         string
-- ARGV[2]  is_paused  1 | 0
-- ARGV[3]  request    string, unique to this call
-- ARGV[4]  changes    channel on which workers hear that there is something to look at
-- RETURNS  1 changed | 0 it was already so | -1 there is no such schedule
-- TWICE    the same, and nothing is changed, even if the opposite was requested in between
-- COST     O(log N), N schedules; and the workers that listen
-- @include server_time
-- @include recall
-- @include remember
-- @include publish
local schedules, looks, declared, paused_schedules = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local recent, older = KEYS[5], KEYS[6]
local id, is_paused, request, changes = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local rest = string.match(redis.call('HGET', schedules, id) or '', '^%d+( .*)$')
if not rest then
  remember(recent, older, request, -1)
  return -1
end
publish(changes, id)  -- first: a user's rights may refuse it
answer = redis.call(is_paused and 'SADD' or 'SREM', paused_schedules, id)
if is_paused then
  redis.call('ZREM', looks, id)
elseif answer == 1 then  -- instants of the pause do not count as missed
  redis.call('HSET', schedules, id, string.format('%.0f', math.floor(server_time() / 1000)) .. rest)
  if not redis.call('ZSCORE', declared, id) then
    redis.call('ZADD', looks, 0, id)
  end
end
remember(recent, older, request, answer)
return answer
