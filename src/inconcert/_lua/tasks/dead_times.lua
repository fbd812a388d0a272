-- tasks/dead_times: when jobs were dead-lettered, the latest first.
--
-- KEYS  dead
-- ARGV  skip   integer >= 0: how many of the latest to skip
-- ARGV  limit  integer from 1 to 1,000
-- RETURNS  {died_ms, ...}; fewer than the limit if there are no more
-- TWICE    the same; nothing is changed
-- COST     O(log N + M), N dead jobs, M answered
local found = redis.call('ZREVRANGE', dead, skip, skip + limit - 1, 'WITHSCORES')
local answer = {}
for i = 2, #found, 2 do
  answer[#answer + 1] = tonumber(found[i])
end
return answer
