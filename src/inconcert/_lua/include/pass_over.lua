-- Notes that a job with these limits, enqueued at `put_ms` if that is known, or 0, has left its queue for good, without a place
-- in any, and that it needs no turn.
-- @include note_limits
local function pass_over(limited, id, limits, put_ms)
  local _, is_rate = note_limits(limited, limits, put_ms)
  if is_rate then
    note_limits(limited, string.gsub(limits, '^/r[^/]+', ''), put_ms)
  end
  local key = string.match(limits, '/s:(%x+)')
  if key then
    limited.turns[key] = limits
    if redis.call('HGET', limited.places, '@' .. key) == id then
      redis.call('HDEL', limited.places, '@' .. key)
    end
  end
end
