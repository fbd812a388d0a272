-- Notes what has become of a group.  Once all members have ended, its callback is among the news, for
-- `resolve_dependents`; if none of them can be replayed, the group is forgotten a day later.
-- Returns whether there are news.
-- @include server_time
-- @include callback_of
-- @include store_group
local function write_group(keys, id, group)
  local DAY_MS = 86400000
  store_group(keys.groups, id, group)
  if group.state == 'open' or group.total > group.succeeded + group.failed + group.cancelled then
    return false
  end
  if group.failed == 0 and not tonumber(group.results) then
    redis.call('ZADD', keys.settled, math.floor(server_time() / 1000) + DAY_MS, id)
  end
  if group.when == '-' or group.state == 'cancelled' then
    return false  -- it has no callback, or that was cancelled before
  end
  redis.call('RPUSH', keys.news, callback_of(id))
  return true
end
