-- tasks/history: the jobs of a task that ended last, the latest first.
--
-- KEYS[1]  history  zset     'TASK NUMBER OUTCOME ENDED_MS ENQUEUED_MS BEGAN_MS ATTEMPTS ID ERROR', all of score 0: how jobs ended
-- ARGV[1]  task     digest of its name
-- ARGV[2]  before   NUMBER of the last one that was listed before; '' to begin
-- ARGV[3]  limit    integer from 1 to 250
-- RETURNS  {entry, ...}
-- TWICE    the same, if no job of it has ended since; nothing is changed
-- COST     O(log N + limit), N entries of all tasks
local history, task, before, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local stop = before == '' and task .. '!' or task .. ' ' .. before
return redis.call('ZREVRANGEBYLEX', history, '(' .. stop, '[' .. task .. ' ', 'LIMIT', 0, limit)
