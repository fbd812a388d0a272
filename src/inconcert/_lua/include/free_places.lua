-- Frees the places that jobs have in their limits while they are claimed, and lets as many others in line be claimed.
-- @include admit_next
local function free_places(places, held_back, states, queues, ids)
  if redis.call('EXISTS', places) == 0 then
    return
  end
  local given, freed, most = {}, {}, {}
  for i, limits in ipairs(redis.call('HMGET', places, unpack(ids))) do
    given[#given + 1] = limits and ids[i] or nil
    for n, limit in string.gmatch(limits or '', '/(%d+):(%x+)') do
      freed[limit] = (freed[limit] or 0) + 1
      most[limit] = math.max(most[limit] or 0, tonumber(n))
    end
  end
  if #given > 0 then
    redis.call('HDEL', places, unpack(given))
  end
  for limit, count in pairs(freed) do
    if redis.call('HINCRBY', places, limit, -count) <= 0 then
      redis.call('HDEL', places, limit)
    end
    admit_next(places, held_back, states, queues, limit, most[limit], count)
  end
end
