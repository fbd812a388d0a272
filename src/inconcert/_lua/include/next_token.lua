-- Issues a fencing token: larger than the last one, and than any that the server issued before it lost its data.
-- A token is a time in microseconds, so that it keeps rising when the counter is gone; it fits a double until 2255.  The
-- counter lives for an hour, and until its own time has come if the clock was set back.
-- Returns it, and whether a holder has lost its lease since the last one: see mark_lost.
local function next_token(fence, now_us)
  local HOUR_MS = 3600000
  local token = string.format('%.0f', now_us)
  local last = redis.call('SET', fence, token, 'PX', HOUR_MS, 'GET')
  local is_after_loss = last and not tonumber(last)
  last = last and tonumber(string.match(last, '^%d+'))
  if last and last >= now_us then
    token = string.format('%.0f', last + 1)
    redis.call('SET', fence, token, 'PX', string.format('%.0f', HOUR_MS + (token - now_us) / 1000))
  end
  return token, is_after_loss
end
