-- tasks/ask_again: let jobs that wait ask again what became of parents in other partitions, and jobs that have ended tell
-- children there again, some at a time: a server that went back in time has forgotten who asked it, or what it was told.
--
-- KEYS  bodies children followers pending unfollowed news asked
-- ARGV  suffix  of the ids of this partition
-- RETURNS  {wait_ms, news}: how long not to ask for this, 5 s if there is more to look at, otherwise 30 s; 1 if there are news
-- TWICE    the rest of the same time, and nothing is changed
-- COST     O(M log C), C pairs of children, M looked at: about 500 jobs that wait and 500 pairs
-- @include server_time
-- @include is_here
local MORE_MS, ROUND_MS, HOUR_MS, COUNT = 5000, 30000, 3600000, 500

if redis.call('EXISTS', pending, children) == 0 then
  return {ROUND_MS, 0}
end
local now_ms = math.floor(server_time() / 1000)
local next_ms, waits_from, pairs_from = string.match(redis.call('GET', asked) or '', '^(%d+) (%d+) (%d+)$')
local left_ms = (tonumber(next_ms) or 0) - now_ms
if left_ms > 0 and left_ms <= ROUND_MS then  -- otherwise the clock was set back
  return {left_ms, 0}
end
-- @guard news:list followers:zset

-- What is unfollowed, or has a follower, is among the news already.
local waits = redis.call('HSCAN', pending, waits_from or '0', 'COUNT', COUNT)
for i = 1, #waits[2], 2 do
  local id, elsewhere = waits[2][i], {}
  for parent in string.gmatch(waits[2][i + 1], '%S+') do
    if not is_here(parent, suffix) then
      elsewhere[#elsewhere + 1] = parent
    end
  end
  if #elsewhere > 0 and redis.call('HSETNX', unfollowed, id, table.concat(elsewhere, ' ')) == 1 then
    redis.call('RPUSH', news, id)
  end
end
local pairs_found, is_new = redis.call('ZSCAN', children, pairs_from or '0', 'COUNT', COUNT), {}
for i = 1, #pairs_found[2], 2 do
  local pair = pairs_found[2][i]
  local id, child = string.match(pair, '^(%S+) (%S+)$')
  if id and not is_here(child, suffix) and redis.call('HEXISTS', bodies, id) == 0
    and redis.call('ZADD', followers, 'NX', 0, pair) == 1 and not is_new[id] then
    is_new[id] = true
    redis.call('RPUSH', news, id)
  end
end

local wait_ms = waits[1] == '0' and pairs_found[1] == '0' and ROUND_MS or MORE_MS
redis.call('SET', asked, string.format('%.0f %s %s', now_ms + wait_ms, waits[1], pairs_found[1]), 'PX', HOUR_MS)
return {wait_ms, redis.call('EXISTS', news)}
