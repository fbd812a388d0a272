-- Drops what is older than this instant from a list of 'AT_MS...', oldest first.
-- Instants never decrease along the list, so bisection finds the first to keep; the oldest is checked first.
local function drop_old(list, oldest_ms)
  local low, middle, high = 0, 0, redis.call('LLEN', list)
  while low < high do
    if tonumber(string.match(redis.call('LINDEX', list, middle), '^%d+')) < oldest_ms then
      low = middle + 1
    else
      high = middle
    end
    middle = math.floor((low + high) / 2)
  end
  if low > 0 then
    redis.call('LTRIM', list, low, -1)
  end
end
