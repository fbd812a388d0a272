-- sessions/open: check that this user may run scripts and use the namespace's keys and channels.
--
-- KEYS  bell
--       bell: list  the session's own
-- ARGV  channel  string  a channel without listeners, in the slot of the bell
-- RETURNS  '' it may | the server's reason for refusing to publish
-- TWICE    the same; nothing is changed
-- COST     O(1)
-- @include publishing
redis.call('EXISTS', bell)
local reply = redis.pcall(publishing(channel), channel, '')
return type(reply) == 'table' and reply.err or ''
