-- queues/leave: wait no more for room.
--
-- KEYS[1]  line     zset    address -> ticket: those who wait for room
-- ARGV[1]  address  of who waits no more
-- ARGV[2]  inboxes  what the channel of each session's inbox begins with
-- RETURNS  1 it was in line | 0 it was not
-- TWICE    0
-- COST     O(log N), N in line
-- @include first_in_line
-- @include let_in
local line, address, inboxes = KEYS[1], ARGV[1], ARGV[2]
local was_there = redis.call('ZREM', line, address)
let_in(line, inboxes)  -- the room may have been offered to the one who left
return was_there
