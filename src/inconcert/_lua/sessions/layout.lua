-- sessions/layout: record how a namespace is divided and stored, unless that is recorded already.
--
-- KEYS  layout
-- ARGV  format       integer > 0, of the keys and values of this release
-- ARGV  partitions   integer from 1 to 1,024
-- ARGV  chat_groups  integer from 1 to 1,024
-- RETURNS  {format, partitions, chat_groups}, as recorded; 0 for one that is not
-- TWICE    the same; nothing is changed
-- COST     O(1)
if redis.call('EXISTS', layout) == 0 then
  redis.call('HSET', layout, 'format', format, 'partitions', partitions, 'chat_groups', chat_groups)
end
local found = redis.call('HMGET', layout, 'format', 'partitions', 'chat_groups')
return {tonumber(found[1] or 0), tonumber(found[2] or 0), tonumber(found[3] or 0)}
