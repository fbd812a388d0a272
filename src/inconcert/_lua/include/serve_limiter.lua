-- Grants permits to waiters of a limiter whose time is at most 5 ms away, 100 at most, and notifies each; drops waiters
-- whose session is gone; and tells the new first waiter (`led` was first before) when to ask. `asker` learns it from the
-- reply. Returns the limiter's end, what the line wants in total, the interval in which a permit comes back, and the first waiter.
-- @include remember
-- @include is_listening
-- @include publish
-- @include quicken
-- @include limiter_wait
-- @include grant_permits
local function serve_limiter(line, recent, older, inboxes, asker, led, end_us, queued_us, pace_us, now_us)
  local listens = {[string.match(asker, '^(.*)%.')] = true}
  for served = 0, 100 do
    local place = redis.call('ZRANGE', line, 0, 0)[1]
    if not place then
      return end_us, 0, pace_us
    end
    local request, session, cost_us, burst_us, interval_us = string.match(place, '^((.*)%.%d+) (%d+) (%d+) (%d+)$')
    cost_us, burst_us, interval_us = tonumber(cost_us), tonumber(burst_us), tonumber(interval_us)
    if listens[session] == nil then
      listens[session] = is_listening(inboxes .. session)
    end
    if listens[session] then
      end_us, pace_us = quicken(end_us, pace_us, interval_us, now_us)
      local wait_us = math.max(0, limiter_wait(end_us, pace_us, 0, cost_us, burst_us, interval_us, now_us))
      local is_granted = wait_us <= 5000 and served < 100
      if request ~= asker and (is_granted or place ~= led) then
        publish(inboxes .. session, string.format('%s limiter %d %.0f %.0f %.0f %d %s',
          request, is_granted and 1 or 0, wait_us, cost_us, burst_us, interval_us, line))
      end
      if not is_granted then
        return end_us, queued_us, pace_us, place
      end
      end_us, pace_us = grant_permits(end_us, pace_us, wait_us, cost_us, interval_us, now_us), interval_us
      remember(recent, older, request, string.format('%.0f', end_us))
    end
    redis.call('ZREM', line, place)
    queued_us = queued_us - cost_us
  end
  return end_us, queued_us, pace_us, redis.call('ZRANGE', line, 0, 0)[1]
end
