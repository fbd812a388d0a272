-- tasks/described: list the workers that have said who they are, some at a time.
--
-- KEYS  described workers alive clock
-- ARGV  cursor  string, '0' to begin
-- RETURNS  {cursor, worker, is_alive, 'heard_ms ABOUT', ...}, also those that are dead and not yet recovered; '0' when
--          these were the last. Workers present throughout are returned, some perhaps twice.
-- TWICE    the same, if the workers are the same; nothing is changed
-- COST     O(N), N workers returned, about 100
-- @include server_time
local now_ms = math.floor(server_time() / 1000)
local at_ms, seen_ms = string.match(redis.call('GET', clock) or '0 0', '^(%S+) (%S+)$')
at_ms = at_ms + math.max(0, now_ms - seen_ms)  -- no worker may be left to advance it
local found = redis.call('HSCAN', described, cursor, 'COUNT', 100)
local answer = {found[1]}
for i = 1, #found[2], 2 do
  local worker = found[2][i]
  local ends = redis.call('ZSCORE', workers, worker) or redis.call('ZSCORE', alive, worker)
  answer[#answer + 1] = worker
  answer[#answer + 1] = ends and tonumber(ends) > at_ms and 1 or 0
  answer[#answer + 1] = found[2][i + 1]
end
return answer
