-- events/clear: clear the flag.
--
-- KEYS[1]  flag     string  '1' while set
-- KEYS[2]  recent   hash    request -> its answer, 120 s
-- KEYS[3]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if the flag was set in between
-- COST     O(1)
-- @include recall
-- @include remember
local flag, recent, older = KEYS[1], KEYS[2], KEYS[3]
local request = ARGV[1]
if recall(recent, older, request) then
  return 1
end
redis.call('DEL', flag)  -- first: it frees memory, so a full server lets the rest pass
remember(recent, older, request, 1)
return 1
