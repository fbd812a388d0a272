-- Tells one waiter of each process in how many milliseconds to re-check: 0 for the first in line if there are messages, 2 s
-- for the others, in case that one is stopped; without messages, when the next claim may lapse.
-- Publishes 'ADDRESS mailbox MS KEY', with the key of the line, so that a process without that address
-- can remove it.  Waiters whose process is gone are dropped.
-- Handles the first 100 in line, and up to 900 more while all are of one process, which may be stopped, or gone;
-- returns 1, for "call again", if all were dropped.
-- @include next_recheck
-- @include is_listening
-- @include publish
local function notify_line(unread, claims, waiters, inboxes, now_ms)
  local ms, next_ms = 0, 2000
  if redis.call('EXISTS', unread) == 0 then
    ms = next_recheck(claims, now_ms)
    next_ms = ms
  end
  local listens, gone, told, seen = {}, {}, 0, 0
  while seen % 100 == 0 and seen < 1000 and told < 2 do
    local line = redis.call('ZRANGE', waiters, seen, seen + 99)
    if #line == 0 then
      break
    end
    seen = seen + #line
    for _, address in ipairs(line) do
      local session = string.match(address, '^(.*)%.')
      if listens[session] == nil then
        listens[session] = is_listening(inboxes .. session)
        if listens[session] then
          publish(inboxes .. session, address .. ' mailbox ' .. string.format('%.0f ', ms) .. waiters)
          ms, told = next_ms, told + 1
        end
      end
      if not listens[session] then
        gone[#gone + 1] = address
      end
    end
  end
  if #gone > 0 then
    redis.call('ZREM', waiters, unpack(gone))
  end
  return seen == 1000 and told == 0 and 1 or 0
end
