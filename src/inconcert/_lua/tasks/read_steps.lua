-- tasks/read_steps: the steps of a job that were kept.
--
-- KEYS[1]  steps    hash    'NUMBER ID' -> a step of that job: signed JSON
-- KEYS[2]  stepped  hash    id -> the number of its latest step
-- KEYS[3]  awaited  hash    id -> 'LENGTH NAME' of each message for which it has left its worker
-- ARGV[1]  id       string
-- ARGV[2]  after    integer >= 0: those with a higher number
-- RETURNS  {more, now_ms, names, number, step, ...}: 1 if there are more, which have no room in 1 MiB; what it waits for
-- TWICE    the same; nothing is changed
-- COST     O(N), N steps answered
-- @include server_time
-- @include if_small
local steps, stepped, awaited, id, after = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
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
