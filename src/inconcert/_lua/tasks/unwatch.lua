-- tasks/unwatch: stop waiting for a job to end.
--
-- KEYS  watchers
--       watchers: zset  'id address': processes that wait for its end
-- ARGV  id       string
-- ARGV  address  'session.number'
-- RETURNS  1 | 0 this address did not wait for it
-- TWICE    0
-- COST     O(log W), W processes that wait for a job
return redis.call('ZREM', watchers, id .. ' ' .. address)
