-- signals/leave: say that a waiter has what it was notified of, or leave the line and let the next have that.
--
-- KEYS[1]  waiters   zset  address -> ticket, server us
-- KEYS[2]  handed    hash  address -> the payload that it was notified of
-- KEYS[3]  earlier   hash  the same, from before
-- ARGV[1]  address   'session.number'
-- ARGV[2]  hands_on  1 if the payload, if any, is for the next in line | 0 if the waiter has it
-- ARGV[3]  inboxes   what the channel of each session's inbox begins with
-- RETURNS  1 handed on | 0 there was nothing to hand on, or nobody to hand it to | -1 call again
-- TWICE    0: it has left
-- COST     O(log N), N waiters
-- @include recall
-- @include notify_first
local waiters, handed, earlier = KEYS[1], KEYS[2], KEYS[3]
local address, hands_on, inboxes = ARGV[1], ARGV[2], ARGV[3]
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
