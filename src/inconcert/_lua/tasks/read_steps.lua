-- tasks/read_steps: the steps of a job that were kept.
--
-- KEYS  steps stepped awaited
-- ARGV  id     string
-- ARGV  after  integer >= 0: those with a higher number
-- RETURNS  {more, now_ms, names, number, step, ...}: 1 if there are more, which have no room in 1 MiB; what it waits for
-- TWICE    the same; nothing is changed
-- COST     O(N), N steps answered
-- @include server_time
-- @include if_small
local last = tonumber(redis.call('HGET', stepped, id) or 0)
local answer, bytes, number = {0, math.floor(server_time() / 1000), redis.call('HGET', awaited, id) or ''}, 0, tonumber(after)
while number < last and bytes < 1048576 do
  number = number + 1
  local step = redis.call('HGET', steps, number .. ' ' .. id)
  if step then  -- otherwise its commit did not arrive
    answer[#answer + 1] = number
    answer[#answer + 1] = string.match(step, '^%d+ (.*)$') or step  -- of a loop, without its count
    bytes = bytes + #step
  end
end
answer[1] = number < last and 1 or 0
return if_small(answer, bytes)
