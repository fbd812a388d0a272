-- idempotency/find: the answer that was kept for a call.
--
-- KEYS[1]  answer  string  what was kept
-- RETURNS  the answer | '' if there is none
-- TWICE    the same; nothing is changed
-- COST     O(N), N bytes of the answer
-- @include if_small
local answer = redis.call('GET', KEYS[1]) or ''
return if_small(answer, #answer)
