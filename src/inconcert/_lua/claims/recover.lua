-- claims/recover: give what a worker holds that is dead, or retires, back to the front of its queues.
--
-- KEYS  workers claimed facts dead reasons states clock alive described bodies
--       claimed: hash, of that worker
--       queues: list, then its bell (list) and delayed (zset), for each queue from which it has claimed
-- @only jobs
-- KEYS  watchers
-- @end
-- KEYS  queues..
-- PLUGS on_release on_back on_failure on_end on_dead
-- ARGV  worker       string
-- ARGV  max_crashes  number > 0: what killed so many workers is dead-lettered, unless its body says how many | 0: the
--                    worker retires, and that is no crash
-- ARGV  inboxes      what the channel of each session's inbox begins with
-- ARGV  names..      of each queue, in the same order
-- MOVES    claimed: lost killed; delayed: admitted; new: put_after
-- RETURNS  {back, dead, told}: how many were requeued, and dead-lettered; 1 if others are to be told of these
--          | {-1, 0, 0}: the worker is alive
-- TWICE    {0, 0, 0}: it holds nothing any more
-- COST     O(N log N), N jobs claimed
-- @include server_time
-- @include bury
-- @include head_of
-- @include requeue
-- @include read_facts
-- @include write_facts
-- @only jobs
-- @include begin_undo
-- @end
local PARTS = 3  -- keys of each queue
local now_ms = math.floor(server_time() / 1000)
local ends = redis.call('ZSCORE', workers, worker) or redis.call('ZSCORE', alive, worker)
local at_ms = string.match(redis.call('GET', clock) or '0 ', '^(%S+) ')
if max_crashes > 0 and ends and tonumber(ends) > tonumber(at_ms) then
  return {-1, 0, 0}
end
-- Where they may go is read before anything is changed: a key that is not ours stops the script here.
-- @guard dead:zset on_release on_back on_failure on_end
local queues_of = {}
for i = NAMES, #ARGV do
  local first = QUEUES + (i - NAMES) * PARTS
  local queue, bell, delayed = unpack(KEYS, first, first + PARTS - 1)
  -- @guard queue:list bell:list delayed:zset
  queues_of[ARGV[i]] = {queue, bell, delayed, facts = facts}
end

local jobs, back, buried, told = {}, 0, {}, 0
local entries = redis.call('HGETALL', claimed)
for i = 1, #entries, 2 do
  if entries[i] ~= '#' then
    local position, attempts, began_ms, name = string.match(entries[i + 1], '^(%d+) (%d+) (%d+) (.*)$')
    jobs[#jobs + 1] = {id = entries[i], position = tonumber(position), queue = name, attempts = attempts, began_ms = began_ms}
  end
end
table.sort(jobs, function(one, other) return one.position > other.position end)  -- so that the first claimed comes to the front
for _, job in ipairs(jobs) do
  local id, queues = job.id, queues_of[job.queue]
  if queues then
    redis.call('HDEL', claimed, id)
    -- @each on_release(keys, {id}, queues)
    local is_last = false
    if max_crashes > 0 then
      local known = read_facts(redis.call('HGET', facts, id))
      known.crashes = known.crashes + 1
      write_facts(facts, id, known)
      -- @each on_failure(keys, job, worker, nil, now_ms)
      local _, most = head_of(redis.call('HGET', bodies, id))
      is_last = known.crashes >= tonumber(most or max_crashes)
      local why = known.crashes .. (known.crashes == 1 and ' worker' or ' workers') .. ' died with it'
      job.reason = '{"reason":"' .. why .. '","attempts":' .. job.attempts .. '}'
    end
    -- @only jobs
    if is_last and redis.call('HGET', keys.undo, id) == '-' then
      begin_undo(keys, id, 'failed ' .. job.reason)
      is_last = false
    end
    -- @end
    if is_last then
      buried[#buried + 1] = job
    else
      -- @each on_back(keys, id, false)
      requeue(keys, queues[1], queues[2], queues[3], inboxes, id)
      back = back + 1
    end
  end
end
if #buried > 0 then
  bury(keys, buried, now_ms, inboxes, {facts = facts, unpack(KEYS, QUEUES)})
end
for _, job in ipairs(buried) do
  told = job.is_news and 1 or told
end
if redis.call('HLEN', claimed) == redis.call('HEXISTS', claimed, '#') then
  redis.call('DEL', claimed)
  redis.call('ZREM', workers, worker)
  redis.call('ZREM', alive, worker)
  redis.call('HDEL', described, worker)
end
return {back, #buried, told}
