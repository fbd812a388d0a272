-- Gives the turn of a key, if no job has it and there is a place, to the first in line for it: that goes to the back of its
-- queue.  `limits` are those of any job of the key; for `queues` see admit_first.lua.  Returns how many came.
-- @include admit_first
-- @include read_limit
local function next_turn(places, held_back, states, queues, limits)
  local key = string.match(limits, '/s:(%x+)')
  local known = string.find(limits, '/%d+:' .. key) and read_limit(redis.call('HGET', places, key))
  if known and known.count >= known.most or redis.call('HEXISTS', places, '@' .. key) == 1 then
    return 0
  end
  local ids = admit_first(held_back, states, queues, key, 1, 'RPUSH')
  if ids[1] then
    redis.call('HSET', places, '@' .. key, ids[1])
  elseif known and known.count == 0 then
    redis.call('HDEL', places, key)  -- no job has it or waits for it
  end
  return #ids
end
