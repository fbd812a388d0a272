-- tasks/history: the jobs of a task that ended last, the latest first.
--
-- KEYS  history
-- ARGV  task    digest of its name
-- ARGV  before  NUMBER of the last one that was listed before; '' to begin
-- ARGV  limit   integer from 1 to 250
-- RETURNS  {entry, ...}
-- TWICE    the same, if no job of it has ended since; nothing is changed
-- COST     O(log N + limit), N entries of all tasks
local stop = before == '' and task .. '!' or task .. ' ' .. before
return redis.call('ZREVRANGEBYLEX', history, '(' .. stop, '[' .. task .. ' ', 'LIMIT', 0, limit)
