-- tasks/children: which jobs run after a job, and have not ended or are dead-lettered.
--
-- KEYS[1]  children  zset  'id child', all of score 0: a job that runs after this one and has not ended
-- ARGV[1]  id        string
-- ARGV[2]  after     the last child of the page before; '' for the first
-- ARGV[3]  limit     integer from 1 to 1,000
-- RETURNS  {child, ...}: in the order of their ids
-- TWICE    the same; nothing is changed
-- COST     O(log C + N), C pairs of children, N returned
local children, id, after, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local first = after == '' and '[' .. id .. ' ' or '(' .. id .. ' ' .. after
local found = redis.call('ZRANGEBYLEX', children, first, '(' .. id .. '!', 'LIMIT', 0, limit)
for n, pair in ipairs(found) do
  found[n] = string.sub(pair, #id + 2)
end
return found
