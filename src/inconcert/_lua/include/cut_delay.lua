-- A delay of a job from now on, ms, text: no longer than until it expires, so that it ends in time.
-- @include expiry_of
local function cut_delay(bodies, id, delay_ms, now_ms)
  local ends_ms = delay_ms ~= '0' and expiry_of(redis.call('HGET', bodies, id))
  return ends_ms and string.format('%.0f', math.min(tonumber(delay_ms), math.max(0, ends_ms + 1 - now_ms))) or delay_ms
end
