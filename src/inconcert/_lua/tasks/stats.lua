-- tasks/stats: how much work there is, and where.
--
-- KEYS[1]    bodies    hash  id -> 'enqueued_ms envelope'
-- KEYS[2]    workers   zset  worker -> when it is taken for dead, server ms
-- KEYS[3]    dead      zset  id -> when it was set aside, server ms
-- KEYS[4]    paused    set   names of queues from which nothing is claimed
-- KEYS[5]    finished  hash  queue name -> jobs that have succeeded or were cancelled
-- KEYS[6..]  queue     list, then its delayed (zset), for each queue; then claimed (hash) of each worker
-- ARGV[1..]  name      of each queue, in the same order
-- RETURNS    {workers, dead, ready, delayed, running, oldest_ms, is_paused, finished, ...}: how many workers live and how
--            many jobs are dead; then for each queue the jobs in it, how long the first has been there since it was
--            enqueued, -1 if there is none among the first 100, and how many have ended well since ever
-- TWICE      the same; nothing is changed
-- COST       O(Q + C), Q queues, C jobs claimed
-- @include server_time
local bodies, workers, dead, paused, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local now_ms = math.floor(server_time() / 1000)
local running = {}
for i = 6 + 2 * #ARGV, #KEYS do
  local entries = redis.call('HGETALL', KEYS[i])
  for n = 1, #entries, 2 do
    local name = string.match(entries[n + 1], '^%d+ %d+ (.*)$')
    if entries[n] ~= '#' then
      running[name] = (running[name] or 0) + 1
    end
  end
end
local answer = {redis.call('ZCOUNT', workers, '(' .. now_ms, '+inf'), redis.call('ZCARD', dead)}
for i = 1, #ARGV do
  local queue, delayed = KEYS[4 + 2 * i], KEYS[5 + 2 * i]
  local enqueued_ms
  for _, id in ipairs(redis.call('LRANGE', queue, 0, 99)) do  -- those without a body were cancelled
    enqueued_ms = enqueued_ms or string.match(redis.call('HGET', bodies, id) or '', '^%d+')
  end
  for _, part in ipairs({
    redis.call('LLEN', queue),
    redis.call('ZCARD', delayed),
    running[ARGV[i]] or 0,
    enqueued_ms and math.max(0, now_ms - enqueued_ms) or -1,
    redis.call('SISMEMBER', paused, ARGV[i]),
    tonumber(redis.call('HGET', finished, ARGV[i]) or 0),
  }) do
    answer[#answer + 1] = part
  end
end
return answer
