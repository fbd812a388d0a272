-- idempotency/find: the answer that was kept for a call.
--
-- KEYS  answer
-- RETURNS  the answer | '' if there is none
-- TWICE    the same; nothing is changed
-- COST     O(N), N bytes of the answer
-- @include if_small
local kept = redis.call('GET', answer) or ''
return if_small(kept, #kept)
