-- schedules/declare: note schedules that are in the code of a worker, and let one look at them now.
--
-- KEYS  schedules definitions looks_in_code declared paused_schedules
-- ARGV  ttl_ms     integer > 0: for how long one is remembered that no worker has in its code
-- ARGV  entries..  id, rule without spaces, signed JSON: of each
-- RETURNS  1
-- TWICE    the same: one that is known stays where it is, and is looked at once more
-- COST     O(E log N), E entries, N schedules; at most 100 that no worker has in its code any more are forgotten
-- @include server_time
local MOST, FIELDS = 100, 3

local now_ms = math.floor(server_time() / 1000)
for _, old in ipairs(redis.call('ZRANGEBYSCORE', declared, '-inf', now_ms - ttl_ms, 'LIMIT', 0, MOST)) do
  redis.call('HDEL', schedules, old)
  redis.call('HDEL', definitions, old)
  redis.call('ZREM', looks_in_code, old)
  redis.call('ZREM', declared, old)
  redis.call('SREM', paused_schedules, old)
end
for at = ENTRIES, #ARGV, FIELDS do
  local id, rule, definition = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  redis.call('HSETNX', schedules, id, string.format('%.0f 0 ', now_ms) .. rule)
  redis.call('HSET', definitions, id, definition)
  redis.call('ZADD', declared, now_ms, id)
  if redis.call('SISMEMBER', paused_schedules, id) == 0 then
    redis.call('ZADD', looks_in_code, 0, id)
  end
end
return 1
