-- tasks/stats: how much work there is in each queue.
--
-- KEYS  bodies dead paused finished waiting clock alive queues..
--       queues: list, then its delayed (zset), for each queue
-- ARGV  names..  of each queue, in the same order
-- RETURNS  {workers, dead, ready, delayed, held_back, waiting, oldest_ms, is_paused, finished, ...}: how many workers are
--          alive and how many jobs are dead; then for each queue the jobs in it, and those of the delayed that wait for a
--          limit; how long the first has been there since it was enqueued, -1 if there is none among the first 100 of each
--          priority; and
--          how many succeeded or were cancelled since it began
-- TWICE    the same; nothing is changed
-- COST     O(Q log D), Q queues with D delayed jobs
-- @include server_time
local PARTS = 2  -- keys of each queue

local now_ms = math.floor(server_time() / 1000)
local at_ms, seen_ms = string.match(redis.call('GET', clock) or '0 0', '^(%S+) (%S+)$')
at_ms = at_ms + math.max(0, now_ms - seen_ms)  -- no worker may be left to advance it
local answer = {redis.call('ZCOUNT', alive, string.format('(%.0f', at_ms), '+inf'), redis.call('ZCARD', dead)}
for i = NAMES, #ARGV do
  local at = QUEUES + PARTS * (i - 1)
  local queue, delayed = KEYS[at], KEYS[at + 1]
  local enqueued_ms
  for _, id in ipairs(redis.call('LRANGE', queue, 0, 99)) do  -- ids without a body were cancelled
    enqueued_ms = enqueued_ms or string.match(redis.call('HGET', bodies, id) or '', '^%d+')
  end
  local ready = redis.call('ZCOUNT', delayed, '5e15', '+inf')  -- but for the turn of their key
  local ranked = redis.call('ZCOUNT', delayed, '-inf', '(0')  -- they have a priority
  for priority = 0, ranked > 0 and 9 or -1 do
    local from, to = (priority - 10) .. 'e14', '(' .. (priority - 9) .. 'e14'  -- as in rank.lua
    local put_ms
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, from, to, 'LIMIT', 0, 100)) do
      put_ms = put_ms or string.match(redis.call('HGET', bodies, id) or '', '^%d+')
    end
    enqueued_ms = put_ms and math.min(put_ms, enqueued_ms or put_ms) or enqueued_ms
  end
  ready = ready + ranked
  for _, part in ipairs({
    redis.call('LLEN', queue) + ready,
    redis.call('ZCARD', delayed) - ready,
    redis.call('ZCOUNT', delayed, '4e15', '(5e15'),  -- as in hold_back.lua
    tonumber(redis.call('HGET', waiting, ARGV[i]) or 0),
    enqueued_ms and math.max(0, now_ms - enqueued_ms) or -1,
    redis.call('SISMEMBER', paused, ARGV[i]),
    tonumber(redis.call('HGET', finished, ARGV[i]) or 0),
  }) do
    answer[#answer + 1] = part
  end
end
return answer
