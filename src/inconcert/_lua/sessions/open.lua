-- sessions/open: see whether this user may run scripts, and use the keys and the channels of the namespace.
--
-- KEYS[1]  bell     list    the session's own
-- ARGV[1]  channel  string  where nobody listens
-- RETURNS  '' it may | why the server does not let it publish there
-- TWICE    the same; nothing is changed
-- COST     O(1)
redis.call('EXISTS', KEYS[1])
local reply = redis.pcall('PUBLISH', ARGV[1], '')
return type(reply) == 'table' and reply.err or ''
