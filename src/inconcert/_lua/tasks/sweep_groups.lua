-- tasks/sweep_groups: forget groups that ended a day ago, at most 500.
--
-- KEYS  groups settled pending
-- RETURNS  how many were looked at; 500 if there may be more
-- TWICE    forgets others, if there are more
-- COST     O(M log N), N groups that have ended, M forgotten
-- @include server_time
-- @include callback_of
local HOUR_MS = 3600000

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
