-- Issues a fencing token: larger than the last one, and than any that the server issued before it lost its data.
-- A token is a time in microseconds, so that it keeps rising when the counter is gone; it fits a double until 2255.  The
-- counter lives for an hour, and until its own time has come if the clock was set back.
local function next_token(fence, now_us)
  local HOUR_MS = 3600000
  local token = string.format('%.0f', now_us)
  local last = redis.call('SET', fence, token, 'PX', HOUR_MS, 'GET')
  if last and tonumber(last) >= now_us then
    token = string.format('%.0f', tonumber(last) + 1)
    redis.call('SET', fence, token, 'PX', string.format('%.0f', HOUR_MS + (token - now_us) / 1000))
  end
  return token
end
