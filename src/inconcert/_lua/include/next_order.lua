-- The order of a job that comes to the end of this line now: the time, ms, but after those that are in it.
local function next_order(limited, line)
  local last = limited.last[line]
  if not last then
    local entry = redis.call('ZREVRANGEBYLEX', limited.held_back, '(' .. line .. '!', '[' .. line .. ' ', 'LIMIT', 0, 1)[1]
    last = tonumber(string.match(entry or '', '^%x+ (%d+)') or 0)
  end
  limited.last[line] = math.max(last + 1, math.floor(limited.now_us / 1000))
  return limited.last[line]
end
