-- Lets a job have a unique name: until its window ends, or while it is live if that is '0'.
local function take_name(unique, checks, id, name, window_ms, now_ms)
  local ends = window_ms == '0' and '0' or string.format('%.0f', now_ms + window_ms)
  redis.call('HSET', unique, name, id .. ' ' .. ends)
  redis.call('ZADD', checks, ends == '0' and now_ms + 3600000 or ends, name)
end
