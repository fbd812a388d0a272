-- tasks/history: the jobs of a task that ended last, the latest first.
--
-- KEYS  history
-- ARGV  task    digest of its name
-- ARGV  before  NUMBER of the last one that was listed before; '' to begin
-- ARGV  limit   integer from 1 to 250; fewer are answered if they have 1 MiB
-- RETURNS  {more, entry, ...}: 1 if there are more, up to the limit
-- TWICE    the same, if no job of it has ended since; nothing is changed
-- COST     O(log N + limit), N entries of all tasks
-- @include if_small
local stop = before == '' and task .. '!' or task .. ' ' .. before
local answer, bytes = {0}, 0
for _, entry in ipairs(redis.call('ZREVRANGEBYLEX', history, '(' .. stop, '[' .. task .. ' ', 'LIMIT', 0, limit)) do
  if bytes >= 1048576 then
    answer[1] = 1
    break
  end
  bytes = bytes + #entry
  answer[#answer + 1] = entry
end
return if_small(answer, bytes)
