-- Gives a group its next version, and publishes the change that made it: 'LAST_VERSION VERSION CHANGE'; returns that.
-- A version is a time in microseconds at first, so that it rises even after the last one was forgotten.
-- @include publish
-- @include extend_ttl
local function tell_members(state, changes, now_us, change)
  local HOUR_MS = 3600000
  local last = redis.call('HGET', state, 'version') or '0'
  local version = string.format('%.0f', math.max(now_us, last + 1))
  redis.call('HSET', state, 'version', version)
  extend_ttl(state, HOUR_MS)
  local told = last .. ' ' .. version .. ' ' .. change
  publish(changes, told)
  return told
end
