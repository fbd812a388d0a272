-- tasks/children: which jobs run after some, and have not ended or are dead-lettered.
--
-- KEYS  children
-- ARGV  after    the last child of the first of these in the page before; '' for its first
-- ARGV  limit    integer from 1 to 1,000
-- ARGV  is_deep  1 for the children of the children, and so on, behind those of the given ones | 0
-- ARGV  ids..    each once, 1 to 100
-- RETURNS {parent, child, ...}: limit pairs at most; parents in the order in which they were given, or are first found as children
-- TWICE   the same; nothing is changed
-- COST    O((I + N) log C), I ids given, C pairs of children, N returned
local found, parents, seen = {}, {unpack(ARGV, IDS)}, {}
for _, id in ipairs(parents) do
  seen[id] = true
end
limit = tonumber(limit)
local n = 1
while parents[n] and #found < 2 * limit do
  local id = parents[n]
  local first = (n > 1 or after == '') and '[' .. id .. ' ' or '(' .. id .. ' ' .. after
  for _, pair in ipairs(redis.call('ZRANGEBYLEX', children, first, '(' .. id .. '!', 'LIMIT', 0, limit - #found / 2)) do
    local child = string.sub(pair, #id + 2)
    found[#found + 1], found[#found + 2] = id, child
    if is_deep == '1' and not seen[child] then
      seen[child] = true
      parents[#parents + 1] = child
    end
  end
  n = n + 1
end
return found
