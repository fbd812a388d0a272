-- latches/count_down: count some more, and tell the waiters.
--
-- KEYS  counted recent older
-- ARGV  request  string, unique to this call
-- ARGV  n        integer > 0
-- ARGV  ttl_ms   number > 0
-- ARGV  changes  channel of the waiters; the message is how many were counted
-- RETURNS  how many were counted, these included
-- TWICE    the same, and nothing more is counted
-- COST     O(W), W processes that listen
-- @include extend_ttl
-- @include recall
-- @include remember
-- @include publish
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = redis.call('INCRBY', counted, n)
extend_ttl(counted, ttl_ms)
remember(recent, older, request, answer)
publish(changes, answer)
return answer
