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
  if #given == 0 then
    return
  end
  redis.call('HDEL', places, unpack(given))
  local names, changed, known = {}, {}, {}
  for limit in pairs(freed) do
    names[#names + 1] = limit
  end
  for i, text in ipairs(redis.call('HMGET', places, unpack(names))) do
    known[i] = read_limit(text)
    known[i].count = math.max(0, known[i].count - freed[names[i]])
    changed[2 * i - 1], changed[2 * i] = names[i], limit_text(known[i])
  end
  redis.call('HSET', places, unpack(changed))
  for i, limit in ipairs(names) do
    if shared[limit] then
      next_turn(places, held_back, states, queues, shared[limit])
    else
      admit_next(places, held_back, states, queues, limit, known[i], freed[limit])
    end
  end
end
