-- sessions/layout: record how a namespace is divided and stored, unless that is recorded already.
--
-- KEYS[1]  layout       hash     'format', 'partitions' and 'chat_groups' -> number; permanent
-- ARGV[1]  format       integer > 0, of the keys and values of this release
-- ARGV[2]  partitions   integer from 1 to 1,024
-- ARGV[3]  chat_groups  integer from 1 to 1,024
-- RETURNS  {format, partitions, chat_groups}, as recorded; 0 for one that is not
-- TWICE    the same; nothing is changed
-- COST     O(1)
local layout = KEYS[1]
if redis.call('EXISTS', layout) == 0 then
  redis.call('HSET', layout, 'format', ARGV[1], 'partitions', ARGV[2], 'chat_groups', ARGV[3])
end
local found = redis.call('HMGET', layout, 'format', 'partitions', 'chat_groups')
return {tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)}
