-- Forgets a limit in which no job has a place, and for which none waits.
local function drop_limit(places, held_back, limit, known)
  if known.count == 0 and #redis.call('ZRANGEBYLEX', held_back, '[' .. limit .. ' ', '(' .. limit .. '!', 'LIMIT', 0, 1) == 0 then
    redis.call('HDEL', places, limit)
  end
end
