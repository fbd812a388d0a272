-- tasks/stopped_keys: which dead jobs stop their keys, of the latest 1,000 that are dead, the latest first.
--
-- KEYS  dead places held_back
-- RETURNS  {id, waiting, ...}: of each how many jobs wait for its key
-- TWICE    the same; nothing is changed
-- COST     O(log N), N jobs in lines
local MOST = 1000
local answer = {}
local ids = redis.call('EXISTS', places) == 1 and redis.call('ZREVRANGE', dead, 0, MOST - 1) or {}
local fields = {}
for n, id in ipairs(ids) do
  fields[n] = '=' .. id
end
for n, key in ipairs(#ids > 0 and redis.call('HMGET', places, unpack(fields)) or {}) do
  if key then
    answer[#answer + 1] = ids[n]
    answer[#answer + 1] = redis.call('ZLEXCOUNT', held_back, '[' .. key .. ' ', '(' .. key .. '!')
  end
end
return answer
