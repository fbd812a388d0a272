-- tasks/unwatch: wait no more for a job to end.
--
-- KEYS[1]  watchers  zset    'id address': which processes wait for its end
-- ARGV[1]  id        string
-- ARGV[2]  address   'session.number'
-- RETURNS  1 | 0 it was not waited for from there
-- TWICE    0
-- COST     O(log W), W processes that wait for a job
return redis.call('ZREM', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
