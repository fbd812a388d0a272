-- barriers/leave: leave the open round; the others keep waiting.
--
-- KEYS[1]  participants  zset  holder -> lease end, server ms; of the open round only
-- KEYS[2]  order         zset  holder -> when it arrived, server us; of the open round only
-- KEYS[3]  recent        hash  holder -> the number of its round, or 'left'; 120 s
-- KEYS[4]  older         hash  the same, from before; at most 120 s
-- ARGV[1]  holder  string; if its arrival runs after this, it does not take part
-- RETURNS  1 left | 0 was not in the open round
-- TWICE    0, and nothing is changed
-- COST     O(log N), N participants
-- @include remember
local participants, order, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder = ARGV[1]
redis.call('ZREM', participants, holder)  -- first: it frees memory, so a full server lets the rest pass
local left = redis.call('ZREM', order, holder)
remember(recent, older, holder, 'left')
return left
