-- Hands a payload to the first in line whose process listens; those whose process is gone are dropped.
-- It says 'ADDRESS signal PAYLOAD', and in a line of its own the key of the line, so that a process in which nobody has that
-- address any more can hand it on; a payload is JSON, which has no newline of its own.
-- Deals with at most 100 of the dead.
-- Returns 1 if someone has it, 0 if nobody is in line, -1 for "call again".
-- @include remember
local function notify_first(waiters, handed, earlier, inboxes, payload)
  for _ = 1, 100 do
    local address = redis.call('ZPOPMIN', waiters)[1]
    if not address then
      return 0
    end
    local inbox = inboxes .. string.match(address, '^(.*)%.')
    if redis.call('PUBSUB', 'NUMSUB', inbox)[2] > 0 then
      remember(handed, earlier, address, payload)
      redis.call('PUBLISH', inbox, address .. ' signal ' .. payload .. '\n' .. waiters)
      return 1
    end
  end
  return -1
end
