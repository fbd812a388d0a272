-- tasks/children: which jobs run after a job, and have not ended or are dead-lettered.
--
-- KEYS  children
-- ARGV  id     string
-- ARGV  after  the last child of the page before; '' for the first
-- ARGV  limit  integer from 1 to 1,000
-- RETURNS  {child, ...}: in the order of their ids
-- TWICE    the same; nothing is changed
-- COST     O(log C + N), C pairs of children, N returned
local first = after == '' and '[' .. id .. ' ' or '(' .. id .. ' ' .. after
local found = redis.call('ZRANGEBYLEX', children, first, '(' .. id .. '!', 'LIMIT', 0, limit)
for n, pair in ipairs(found) do
  found[n] = string.sub(pair, #id + 2)
end
return found
