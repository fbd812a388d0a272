-- Frees the places that jobs have in their limits while they are claimed, and lets as many others in line be claimed.
-- @include admit_next
-- @include limit_text
-- @include next_turn
-- @include read_limit
local function free_places(places, held_back, states, queues, ids)
  if redis.call('EXISTS', places) == 0 then
    return
  end
  local given, freed, shared = {}, {}, {}
  for i, limits in ipairs(redis.call('HMGET', places, unpack(ids))) do
    given[#given + 1] = limits and ids[i] or nil
    local key = string.match(limits or '', '^/s:(%x+)')
    for limit in string.gmatch(limits or '', '/%d+:(%x+)') do
      freed[limit] = (freed[limit] or 0) + 1
      shared[limit] = limit == key and limits or shared[limit]
    end
  end
  if #given > 0 then
    redis.call('HDEL', places, unpack(given))
  end
  for limit, count in pairs(freed) do
    local known = read_limit(places, limit)
    known.count = math.max(0, known.count - count)
    redis.call('HSET', places, limit, limit_text(known))
    if shared[limit] then
      next_turn(places, held_back, states, queues, shared[limit])
    else
      admit_next(places, held_back, states, queues, limit, count)
    end
  end
end
