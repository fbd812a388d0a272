-- Notes that a job with these limits, enqueued at `put_ms` if that is known, or 0, has left its queue for good, without a place
-- in any, and that it needs no turn.
-- @include note_limits
local function pass_over(limited, id, limits, put_ms)
  note_limits(limited, limits, put_ms, true)
  if limits.key then
    limited.turns[limits.key] = limits.text
    if redis.call('HGET', limited.places, '@' .. limits.key) == id then
      redis.call('HDEL', limited.places, '@' .. limits.key)
    end
  end
end
