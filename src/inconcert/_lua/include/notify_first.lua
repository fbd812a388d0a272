-- Hands a payload to the first in line whose process listens; waiters whose process is gone are dropped.
-- Publishes 'ADDRESS signal PAYLOAD', and the key of the line on a second line, so that a process without that
-- address can pass it on; a payload is JSON, which has no newline of its own.
-- Drops at most 100 dead waiters.
-- Returns 1 if it was handed over, 0 if the line is empty, -1 for "call again".
-- @include remember
-- @include is_listening
-- @include publish
local function notify_first(waiters, handed, earlier, inboxes, payload)
  for _ = 1, 100 do
    local address = redis.call('ZPOPMIN', waiters)[1]
    if not address then
      return 0
    end
    local inbox = inboxes .. string.match(address, '^(.*)%.')
    if is_listening(inbox) then
      remember(handed, earlier, address, payload)
      publish(inbox, address .. ' signal ' .. payload .. '\n' .. waiters)
      return 1
    end
  end
  return -1
end
