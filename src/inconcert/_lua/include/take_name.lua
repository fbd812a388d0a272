-- Gives a job a unique name: until its window ends, or while it is live if that is '0'.  As long as all names had
-- windows, the keys expire with the last of these.  `before` is a job that it replaces, which has not ended: as long as that
-- is live, the name is its own again if the new one ends first.
local function take_name(unique, checks, id, name, window_ms, now_ms, before)
  local HOUR_MS = 3600000
  local left_ms = redis.call('PTTL', unique)  -- -1 if it has no end, -2 if it is new
  local ends = window_ms == '0' and '0' or string.format('%.0f', now_ms + window_ms)
  redis.call('HSET', unique, name, id .. ' ' .. ends .. (before and ' ' .. before or ''))
  redis.call('ZADD', checks, ends == '0' and now_ms + HOUR_MS or ends, name)
  for _, key in ipairs({unique, checks}) do
    if ends == '0' and left_ms ~= -1 then
      redis.call('PERSIST', key)
    elseif ends ~= '0' and left_ms ~= -1 and left_ms < tonumber(window_ms) then
      redis.call('PEXPIRE', key, window_ms)
    end
  end
end
