-- Notes that a job with these limits has left its queue for good, without a place in any, and that it needs no turn.
-- @include note_limits
local function pass_over(limited, id, limits)
  local _, is_rate = note_limits(limited, limits)
  if is_rate then
    note_limits(limited, string.gsub(limits, '^/r[^/]+', ''))
  end
  local key = string.match(limits, '/s:(%x+)')
  if key then
    limited.turns[key] = limits
    if redis.call('HGET', limited.places, '@' .. key) == id then
      redis.call('HDEL', limited.places, '@' .. key)
    end
  end
end
