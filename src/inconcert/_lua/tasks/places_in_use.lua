-- tasks/places_in_use: how many jobs have a place in some limits.
--
-- KEYS  places
-- ARGV  limits..  at most 500
-- RETURNS  {count, ...}: of each limit, in the same order
-- TWICE    the same; nothing is changed
-- COST     O(N), N limits
local counts = redis.call('HMGET', places, unpack(ARGV))
for n, count in ipairs(counts) do
  counts[n] = tonumber(string.match(count or '0', '^%d+'))
end
return counts
