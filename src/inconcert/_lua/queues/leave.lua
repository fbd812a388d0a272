-- queues/leave: stop waiting for room.
--
-- KEYS[1]  line     zset    address -> ticket: puts that wait for room
-- KEYS[2]  told     hash    session -> when it was notified of room and has not come since, server ms; 60 s
-- KEYS[3]  recent   hash    request -> its answer, 120 s
-- KEYS[4]  older    hash    earlier entries of the same; at most 120 s
-- ARGV[1]  address  of the waiter: its request. If its put arrives after this, it adds nothing
-- ARGV[2]  inboxes  prefix of each session's inbox channel
-- RETURNS  1 it was in line | 0 it was not
-- TWICE    0
-- COST     O(log N), N in line
-- @include remember
-- @include wake_first_putter
local line, told, recent, older, address, inboxes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1], ARGV[2]
local was_there = redis.call('ZREM', line, address)  -- first: it frees memory, so a full server accepts the rest
redis.call('HDEL', told, string.match(address, '^(.*)%.'))  -- it has come
remember(recent, older, address, 0)
wake_first_putter(line, inboxes)  -- the room may have been offered to the leaver
return was_there
