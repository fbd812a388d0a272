-- tasks/delayed_ids: the ids of the delayed jobs of a queue, the earliest first, after one that was listed before.
--
-- KEYS  delayed
-- ARGV  at_ms  of the last one; '' to begin
-- ARGV  last   its id; '' to begin
-- ARGV  limit  number from 1 to 250
-- RETURNS  {id, at_ms, ...}. What stays where it is, is not left out; if the last one did not, those of its time come again.
-- TWICE    the same, if the set is the same; nothing is changed
-- COST     O(log N + M), N ids, M of them returned
local first = redis.call('ZCOUNT', delayed, '-inf', '(0')  -- those before it are ready, and have a priority
if last ~= '' then
  local now_at = redis.call('ZSCORE', delayed, last)
  if now_at and tonumber(now_at) == tonumber(at_ms) then
    first = redis.call('ZRANK', delayed, last) + 1
  else
    first = redis.call('ZCOUNT', delayed, '-inf', '(' .. at_ms)
  end
end
return redis.call('ZRANGE', delayed, first, first + limit - 1, 'WITHSCORES')
