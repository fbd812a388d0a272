-- Whether a job that comes to its queue has the turn of its key, which no other job has or waits for.
local function take_turn(places, held_back, key, id)
  if redis.call('HEXISTS', places, '@' .. key) == 1
    or #redis.call('ZRANGEBYLEX', held_back, '[' .. key .. ' ', '(' .. key .. '!', 'LIMIT', 0, 1) > 0 then
    return false
  end
  redis.call('HSET', places, '@' .. key, id)
  return true
end
