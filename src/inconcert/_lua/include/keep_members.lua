-- Keeps what is known of a group for an hour longer than its members' leases; the leases longest, so that each lapse is seen.
-- @include extend_ttl
local function keep_members(members, values, state, claims, ttl_ms)
  local HOUR_MS = 3600000
  extend_ttl(members, ttl_ms + 2 * HOUR_MS)
  extend_ttl(values, ttl_ms + HOUR_MS)
  extend_ttl(state, ttl_ms + HOUR_MS)
  extend_ttl(claims, ttl_ms + HOUR_MS)
end
