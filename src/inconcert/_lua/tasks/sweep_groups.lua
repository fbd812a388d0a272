-- tasks/sweep_groups: forget groups that ended a day ago, at most 500.
--
-- KEYS[1]  groups   hash  group -> what has become of it; see read_group.lua
-- KEYS[2]  settled  zset  group -> when to forget it, server ms; of those that have ended
-- KEYS[3]  pending  hash  id -> ids of the parents that it still waits for; of a callback its group
-- RETURNS  how many were looked at; 500 if there may be more
-- TWICE    forgets others, if there are more
-- COST     O(M log N), N groups that have ended, M forgotten
-- @include server_time
-- @include callback_of
local HOUR_MS = 3600000

local groups, settled, pending = KEYS[1], KEYS[2], KEYS[3]
local now_ms = math.floor(server_time() / 1000)
local due = redis.call('ZRANGEBYSCORE', settled, '-inf', now_ms, 'LIMIT', 0, 500)
for _, group in ipairs(due) do
  redis.call('ZREM', settled, group)  -- first: it frees memory, so a full server accepts the rest
  if redis.call('HEXISTS', pending, callback_of(group)) == 1 then
    redis.call('ZADD', settled, now_ms + HOUR_MS, group)  -- no worker has passed its end on yet
  else
    redis.call('HDEL', groups, group)
  end
end
return #due
