-- queues/leave: stop waiting for room.
--
-- KEYS  line told recent older
-- ARGV  address  of the waiter: its request. If its put arrives after this, it adds nothing
-- ARGV  inboxes  prefix of each session's inbox channel
-- RETURNS  1 it was in line | 0 it was not
-- TWICE    0
-- COST     O(log N), N in line
-- @include remember
-- @include wake_first_putter
local was_there = redis.call('ZREM', line, address)  -- first: it frees memory, so a full server accepts the rest
redis.call('HDEL', told, string.match(address, '^(.*)%.'))  -- it has come
remember(recent, older, address, 0)
wake_first_putter(line, inboxes)  -- the room may have been offered to the leaver
return was_there
