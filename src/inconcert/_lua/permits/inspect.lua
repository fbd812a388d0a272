-- permits/inspect: the holders, and how many wait.
--
-- KEYS  holders waiters
-- RETURNS  {waiting, held, holder, ...}: how many are in line, how many permits are held, and the holders
--          of the first 1,000 of these
-- TWICE    the same; nothing is changed
-- COST     O(log N + M), N holders, M of them answered
-- @include server_time
local now_ms = math.floor(server_time() / 1000)
local first = redis.call('ZRANGEBYSCORE', holders, '(' .. now_ms, '+inf', 'LIMIT', 0, 1000)
local answer = {redis.call('ZCARD', waiters), redis.call('ZCOUNT', holders, '(' .. now_ms, '+inf')}
for _, holder in ipairs(first) do
  if not string.find(holder, '+', 1, true) then
    answer[#answer + 1] = holder
  end
end
return answer
