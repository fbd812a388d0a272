-- Frees the places that jobs have in their limits while they are claimed, and lets as many others in line be claimed.
-- @include admit_next
-- @include limit_text
-- @include next_turn
-- @include parse_limits
-- @include read_limit
local function free_places(places, held_back, states, queues, ids)
  if redis.call('EXISTS', places) == 0 then
    return
  end
  local given, freed, shared, parsed = {}, {}, {}, {}
  for i, text in ipairs(redis.call('HMGET', places, unpack(ids))) do
    if text then
      given[#given + 1] = ids[i]
      for _, each in ipairs(parse_limits(parsed, text).counts) do
        freed[each.limit] = (freed[each.limit] or 0) + 1
        shared[each.limit] = each.is_of_key and text or shared[each.limit]
      end
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
