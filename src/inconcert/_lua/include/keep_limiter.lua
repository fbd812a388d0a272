-- Keeps a limiter's state until all its permits are back, and a minute longer while it has a line.
local function keep_limiter(state, line, end_us, queued_us, pace_us, now_us)
  local life_ms = math.ceil((math.max(end_us, now_us) - now_us + queued_us) / 1000) + 1  -- rounded up from a full millisecond
  if queued_us > 0 then
    life_ms = life_ms + 60000
    redis.call('PEXPIRE', line, life_ms)
  end
  redis.call('SET', state, string.format('%.0f %.0f %d', end_us, queued_us, pace_us), 'PX', life_ms)
end
