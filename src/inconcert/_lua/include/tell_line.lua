-- Tells one waiter of each process in how many milliseconds to look: 0 to the first in line if there are messages, and 2 s to
-- the others, should that one stand still; if there are none, when the next claim may lapse.
-- It says 'ADDRESS mailbox MS KEY', with the key of the line, so that a process in which nobody has that address any more
-- can take it out.  Those whose process is gone are dropped.
-- Deals with the first 100 in line; returns 1, for "call again", if all were dropped.
local function tell_line(unread, claims, waiters, inboxes, now_ms)
  local line = redis.call('ZRANGE', waiters, 0, 99)
  if #line == 0 then
    return 0
  end
  local ms, next_ms = 0, 2000
  if redis.call('EXISTS', unread) == 0 then
    ms = next_look(claims, now_ms)
    next_ms = ms
  end
  local listens, is_told = {}, false
  for _, address in ipairs(line) do
    local session = string.match(address, '^(.*)%.')
    if listens[session] == nil then
      listens[session] = redis.call('PUBSUB', 'NUMSUB', inboxes .. session)[2] > 0
      if listens[session] then
        redis.call('PUBLISH', inboxes .. session, address .. ' mailbox ' .. string.format('%.0f ', ms) .. waiters)
        ms, is_told = next_ms, true
      end
    end
    if not listens[session] then
      redis.call('ZREM', waiters, address)
    end
  end
  return #line == 100 and not is_told and 1 or 0
end
