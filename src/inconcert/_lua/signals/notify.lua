-- signals/notify: wake the waiter that has waited longest.
--
-- KEYS  waiters handed earlier recent older
-- ARGV  request  string, unique to this call
-- ARGV  payload  JSON
-- ARGV  inboxes  what the channel of each session's inbox begins with
-- RETURNS  1 done | 0 nobody waits | -1 call again
-- TWICE    the same, and nobody else is woken, even if somebody has come in between; after -1 it looks again
-- COST     O(log N), N waiters
-- @include recall
-- @include remember
-- @include notify_first
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = notify_first(waiters, handed, earlier, inboxes, payload)
if answer >= 0 then
  remember(recent, older, request, answer)
end
return answer
