-- chat/members: who is in the chat, and how far each has read.
--
-- KEYS  members
-- ARGV  cursor  0 to begin, then what the last call returned
-- RETURNS  {next cursor or 0, {user, id, ...}}: no users at all if there is no such chat
-- TWICE    the same; nothing is changed
-- COST     O(N), N members, at most about 1,000 of them
return redis.call('ZSCAN', members, cursor, 'COUNT', 1000)
