-- barriers/leave: leave the open round; the others keep waiting.
--
-- KEYS  participants order recent older
-- ARGV  holder  string; if its arrival runs after this, it does not take part
-- RETURNS  1 left | 0 was not in the open round
-- TWICE    0, and nothing is changed
-- COST     O(log N), N participants
-- @include remember
redis.call('ZREM', participants, holder)  -- first: it frees memory, so a full server lets the rest pass
local left = redis.call('ZREM', order, holder)
remember(recent, older, holder, 'left')
return left
