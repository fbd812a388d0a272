-- The server's clock, in microseconds since 1970.
local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
