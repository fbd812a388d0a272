-- Takes ids of jobs that may run now, at most so many, from a queue in which some have a priority: those of 0 to 4 first, then
-- what is in its list, then those of 6 to 9.  Returns them, and in `scores` those of the ids that have a priority.
local function take_ready(queue, delayed, count, scores)
  local USUAL = '-5e14'  -- as in rank.lua
  for _, between in ipairs({{'-inf', '(' .. USUAL}, false, {USUAL, '(0'}}) do
    local ids = {}
    if between then
      local found = redis.call('ZRANGEBYSCORE', delayed, between[1], between[2], 'WITHSCORES', 'LIMIT', 0, count)
      for n = 1, #found, 2 do
        ids[#ids + 1], scores[found[n]] = found[n], found[n + 1]
      end
      if #ids > 0 then
        redis.call('ZREM', delayed, unpack(ids))
      end
    else
      ids = redis.call('LPOP', queue, count) or ids
    end
    if #ids > 0 then
      return ids
    end
  end
  return {}
end
