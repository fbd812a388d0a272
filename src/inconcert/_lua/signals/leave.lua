-- signals/leave: say that a waiter has what it was notified of, or leave the line and let the next have that.
--
-- KEYS  waiters handed earlier
-- ARGV  address   'session.number'
-- ARGV  hands_on  1 if the payload, if any, is for the next in line | 0 if the waiter has it
-- ARGV  inboxes   what the channel of each session's inbox begins with
-- RETURNS  1 handed on | 0 there was nothing to hand on, or nobody to hand it to | -1 call again
-- TWICE    0: it has left
-- COST     O(log N), N waiters
-- @include recall
-- @include notify_first
redis.call('ZREM', waiters, address)
local payload = recall(handed, earlier, address)
local answer = 0
if payload and hands_on == '1' then
  answer = notify_first(waiters, handed, earlier, inboxes, payload)
end
if payload and answer >= 0 then
  redis.call('HDEL', handed, address)
  redis.call('HDEL', earlier, address)
end
return answer
