-- A limit of a job that was enqueued at `put_ms`, as it is stored, with as many places as the latest job says; `known` has those
-- that were read before.
-- @include read_limit
local function stored_limit(limited, each, put_ms)
  local known = limited.known[each.limit]
  if not known then
    known = read_limit(redis.call('HGET', limited.places, each.limit))
    known.left, limited.known[each.limit] = 0, known
  end
  if put_ms >= known.at_ms then  -- the later one is in force
    known.most, known.at_ms = each.most, put_ms
  end
  return known
end
