-- events/clear: clear the flag.
--
-- KEYS  flag recent older
-- ARGV  request  string, unique to this call
-- RETURNS  1
-- TWICE    the same, and nothing is changed, even if the flag was set in between
-- COST     O(1)
-- @include recall
-- @include remember
if recall(recent, older, request) then
  return 1
end
redis.call('DEL', flag)  -- first: it frees memory, so a full server lets the rest pass
remember(recent, older, request, 1)
return 1
