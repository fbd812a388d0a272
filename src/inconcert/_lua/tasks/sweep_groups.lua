-- tasks/sweep_groups: forget groups that ended a day ago, and drop results that were let go, at most 500 of each.
--
-- KEYS  groups settled pending bodies
-- RETURNS  how many were looked at; 500 if there may be more
-- TWICE    forgets and drops others, if there are more
-- COST     O(M log N), N groups that have ended, M forgotten, and results dropped
-- @include server_time
-- @include callback_of
-- @include read_group
-- @include store_group
-- @include member_of
local MOST, HOUR_MS, DAY_MS = 500, 3600000, 86400000

local now_ms = math.floor(server_time() / 1000)
local left = MOST
local function drop_results(id, group)
  local last = tonumber(group.results)
  local first = math.max(0, last - left)
  left = left - (last - first)
  local members = {}
  for number = first, last - 1 do
    members[#members + 1] = member_of(id, number)
  end
  if #members > 0 then
    redis.call('HDEL', groups, unpack(members))
  end
  group.results = first > 0 and string.format('%.0f', first) or 'gone'
  store_group(groups, id, group)
  return first > 0
end

local due = redis.call('ZRANGEBYSCORE', settled, '-inf', now_ms, 'LIMIT', 0, MOST)
for _, id in ipairs(due) do
  local group = read_group(groups, id)
  local callback = callback_of(id)
  redis.call('ZREM', settled, id)  -- first: it frees memory, so a full server accepts the rest
  if group and group.results == 'kept' and redis.call('HEXISTS', bodies, callback) == 0 then
    group.results = string.format('%.0f', group.given)
  end
  if group and tonumber(group.results) then
    if drop_results(id, group) then
      redis.call('ZADD', settled, now_ms, id)
    elseif group.when == '-' then
      redis.call('HDEL', groups, id)
    elseif group.state ~= 'open' and group.live == 0 and group.failed == 0 then
      redis.call('ZADD', settled, now_ms + DAY_MS, id)
    end
  elseif redis.call('HEXISTS', pending, callback) == 1 or group and group.results == 'kept' then
    redis.call('ZADD', settled, now_ms + HOUR_MS, id)  -- no worker has passed its end on yet, or its callback may read results
  else
    redis.call('HDEL', groups, id)
  end
end
return left == 0 and MOST or #due
