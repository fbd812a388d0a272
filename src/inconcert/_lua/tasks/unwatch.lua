-- tasks/unwatch: wait no more for a job to end.
--
-- KEYS[1]  watchers  hash    id -> addresses of those who wait for its end
-- ARGV[1]  id        string
-- ARGV[2]  address   'session.number'
-- RETURNS  1 | 0 it was not waited for from there
-- TWICE    0
-- COST     O(W), W who wait for this job
local watchers = KEYS[1]
local id, address = ARGV[1], ' ' .. ARGV[2] .. ' '
local addresses = redis.call('HGET', watchers, id)
local first, last = string.find(addresses or '', address, 1, true)
if not first then
  return 0
end
local others = string.sub(addresses, 1, first - 1) .. string.sub(addresses, last + 1)
if others == '' then
  redis.call('HDEL', watchers, id)
else
  redis.call('HSET', watchers, id, others)
end
return 1
