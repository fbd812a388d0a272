-- Notes that a job with these limits has left its queue for good, without a place in any.
-- @include note_limits
local function pass_over(limited, limits, at)
  local _, is_rate = note_limits(limited, limits, at)
  if is_rate then
    note_limits(limited, string.gsub(limits, '^/r[^/]+', ''), at)
  end
end
