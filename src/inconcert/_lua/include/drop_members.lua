-- Drops members of a group whose lease has lapsed, at most 100 of them, and their claims with them; publishes
-- each change, and returns them.
-- @include tell_members
local function drop_members(members, values, state, changes, now_us)
  local told = {}
  local now_ms = math.floor(now_us / 1000)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', members, '-inf', now_ms, 'LIMIT', 0, 100)) do
    redis.call('ZREM', members, member)  -- first: it frees memory, so a full server accepts the rest
    redis.call('HDEL', values, member)
    redis.call('HDEL', state, 'turn:' .. member)
    told[#told + 1] = tell_members(state, changes, now_us, 'lost ' .. member)
  end
  return told
end
