-- sessions/layout: record how a namespace is divided, unless that is recorded already.
--
-- KEYS[1]  layout       hash     'partitions' and 'chat_groups' -> number; permanent
-- ARGV[1]  partitions   integer from 1 to 1,024
-- ARGV[2]  chat_groups  integer from 1 to 1,024
-- RETURNS  {partitions, chat_groups}, as recorded
-- TWICE    the same; nothing is changed
-- COST     O(1)
local layout = KEYS[1]
if redis.call('EXISTS', layout) == 0 then
  redis.call('HSET', layout, 'partitions', ARGV[1], 'chat_groups', ARGV[2])
end
local found = redis.call('HMGET', layout, 'partitions', 'chat_groups')
return {tonumber(found[1] or 0), tonumber(found[2] or 0)}
