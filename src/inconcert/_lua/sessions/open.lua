-- sessions/open: check that this user may run scripts and use the namespace's keys and channels.
--
-- KEYS[1]  bell     list    the session's own
-- ARGV[1]  channel  string  a channel without listeners, in the slot of the bell
-- RETURNS  '' it may | the server's reason for refusing to publish
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include publishing
redis.call('EXISTS', KEYS[1])
local reply = redis.pcall(publishing(ARGV[1]), ARGV[1], '')
return type(reply) == 'table' and reply.err or ''
