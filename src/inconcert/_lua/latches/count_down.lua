-- latches/count_down: count some more, and tell the waiters.
--
-- KEYS[1]  counted  string  how many were counted; ttl_ms after the last one
-- KEYS[2]  recent   hash    request -> its answer, 120 s
-- KEYS[3]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  n        integer > 0
-- ARGV[3]  ttl_ms   integer > 0
-- ARGV[4]  changes  channel of the waiters; the message is how many were counted
-- RETURNS  how many were counted, these included
-- TWICE    the same, and nothing more is counted
-- COST     O(W), W processes that listen
-- @include extend_ttl
-- @include recall
-- @include remember
-- @include publish
local counted, recent, older = KEYS[1], KEYS[2], KEYS[3]
local request, n, ttl_ms, changes = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = redis.call('INCRBY', counted, n)
extend_ttl(counted, ttl_ms)
remember(recent, older, request, answer)
publish(changes, answer)
return answer
