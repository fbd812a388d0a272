-- tasks/unwatch: stop waiting for a job to end.
--
-- KEYS[1]  watchers  zset    'id address': processes that wait for its end
-- ARGV[1]  id        string
-- ARGV[2]  address   'session.number'
-- RETURNS  1 | 0 this address did not wait for it
-- TWICE    0
-- COST     O(log W), W processes that wait for a job
return redis.call('ZREM', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
