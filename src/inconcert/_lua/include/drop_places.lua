-- Removes stopped sessions from the line, as far as their places are among the first 1,000: each place would delay
-- the line as long as the first did.  A process that resumes asks again and regains its places.  The caller's own session
-- (`home`) is not stopped.
local function drop_places(waiters, still, home)
  still[home] = nil
  if next(still) then
    for _, place in ipairs(redis.call('ZRANGE', waiters, 0, 999)) do
      if still[string.match(place, '^%S+ (.*)%.')] then
        redis.call('ZREM', waiters, place)
      end
    end
  end
end
