-- queues/leave: wait no more for room.
--
-- KEYS[1]  line     zset    address -> ticket: those who wait for room
-- KEYS[2]  told     hash    session -> when it was told that there is room, if it has not come since, server ms; 60 s
-- KEYS[3]  recent   hash    id of the first item of a put -> its answer, 120 s
-- KEYS[4]  older    hash    the same, from before; at most 120 s
-- ARGV[1]  address  of who waits no more: the id of the first item. Should its put come after this, it adds nothing
-- ARGV[2]  inboxes  what the channel of each session's inbox begins with
-- RETURNS  1 it was in line | 0 it was not
-- TWICE    0
-- COST     O(log N), N in line
-- @include remember
-- @include wake_first_putter
local line, told, recent, older, address, inboxes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2]
local was_there = redis.call('ZREM', line, address)  -- first: it frees memory, so a full server lets the rest pass
redis.call('HDEL', told, string.match(address, '^(.*)%.'))  -- it has come
remember(recent, older, address, 0)
wake_first_putter(line, inboxes)  -- the room may have been offered to the one who left
return was_there
