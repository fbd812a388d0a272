-- mailboxes/withdraw: leave the line, and put back at once what was claimed for a caller that does not take it.
--
-- KEYS  messages unread claims claimed dropped waiters recent older
-- ARGV  address    that of the fetch
-- ARGV  inboxes    what the channel of each session's inbox begins with
-- ARGV  puts_back  1 to put back what it claimed | 0 if somebody may have that in hand
-- RETURNS  how many messages are back
-- TWICE    0; the line is told again, if there are messages or nothing was to be put back
-- COST     O(M log N), M messages put back, N there
-- @include server_time
-- @include remember
-- @include return_unread
-- @include notify_line
redis.call('ZREM', waiters, address)
remember(recent, older, address, 1)
local count = puts_back == '1' and return_unread(messages, unread, claims, claimed, dropped, address, false) or 0
if puts_back == '0' or redis.call('EXISTS', unread) == 1 then  -- perhaps this waiter was the one to recheck
  notify_line(unread, claims, waiters, inboxes, math.floor(server_time() / 1000))
end
return count
