-- signals/notify: wake the waiter that has waited longest.
--
-- KEYS[1]  waiters  zset  address -> ticket, server us
-- KEYS[2]  handed   hash  address -> the payload that it was notified of; 120 s
-- KEYS[3]  earlier  hash  the same, from before; at most 120 s
-- KEYS[4]  recent   hash  request -> its answer, 120 s
-- KEYS[5]  older    hash  the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  payload  JSON
-- ARGV[3]  inboxes  what the channel of each session's inbox begins with
-- RETURNS  1 done | 0 nobody waits | -1 call again
-- TWICE    the same, and nobody else is woken, even if somebody has come in between; after -1 it looks again
-- COST     O(log N), N waiters
-- @include recall
-- @include remember
-- @include notify_first
local waiters, handed, earlier, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local request, payload, inboxes = ARGV[1], ARGV[2], ARGV[3]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = notify_first(waiters, handed, earlier, inboxes, payload)
if answer >= 0 then
  remember(recent, older, request, answer)
end
return answer
