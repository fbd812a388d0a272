-- mailboxes/withdraw: leave the line, and put back at once what was claimed for a caller that does not take it.
--
-- KEYS[1]  messages   hash    id -> 'LAPSES BODY'
-- KEYS[2]  unread     zset    id -> id
-- KEYS[3]  claims     zset    claim -> lease end, server ms
-- KEYS[4]  claimed    hash    claim -> 'MISSED ID ID ...'
-- KEYS[5]  dropped    string  how many were dropped unread and not yet reported
-- KEYS[6]  waiters    zset    address -> ticket
-- KEYS[7]  recent     hash    fetch that is over -> 1, 120 s
-- KEYS[8]  older      hash    the same, from before; at most 120 s
-- ARGV[1]  address    that of the fetch
-- ARGV[2]  inboxes    what the channel of each session's inbox begins with
-- ARGV[3]  puts_back  1 to put back what it claimed | 0 if somebody may have that in hand
-- RETURNS  how many messages are back
-- TWICE    0; the line is told again, if there are messages or nothing was to be put back
-- COST     O(M log N), M messages put back, N there
-- @include server_time
-- @include remember
-- @include return_unread
-- @include notify_line
local messages, unread, claims, claimed, dropped, waiters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local recent, older = KEYS[7], KEYS[8]
local address, inboxes, puts_back = ARGV[1], ARGV[2], ARGV[3]
redis.call('ZREM', waiters, address)
remember(recent, older, address, 1)
local count = puts_back == '1' and return_unread(messages, unread, claims, claimed, dropped, address, false) or 0
if puts_back == '0' or redis.call('EXISTS', unread) == 1 then  -- perhaps this waiter was the one to recheck
  notify_line(unread, claims, waiters, inboxes, math.floor(server_time() / 1000))
end
return count
