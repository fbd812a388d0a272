-- tasks/resolve_dependents: notify waiters of a job's end, and make dependents without open parents ready.
--
-- KEYS[1]    news       list    ids of jobs that have ended or may run now, not processed yet
-- KEYS[2]    bodies     hash    id -> 'enqueued_ms envelope'
-- KEYS[3]    states     hash    id -> where it is, unless in its queue
-- KEYS[4]    dead       zset    id -> when it was dead-lettered, server ms
-- KEYS[5]    reasons    hash    id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[6]    watchers   zset    'id address': processes that wait for its end
-- KEYS[7]    parents    hash    id -> ids of the jobs it runs after
-- KEYS[8]    children   hash    id -> number of jobs that run after it and have not ended
-- KEYS[9]    followers  zset    'id child', all of score 0: a child to resolve when the job of this id has ended
-- KEYS[10]   outcomes   hash    id -> outcome of a job that has children
-- KEYS[11]   waiting    hash    queue name -> its jobs that wait for others
-- KEYS[12..] queues     list, then its bell (list) and delayed (zset), for each queue
-- ARGV[1]    inboxes    prefix of each session's inbox channel
-- ARGV[2..]  names      of each queue, in the same order
-- RETURNS    {left, stuck, queue-name, ...}: how many news there are now; how many of those checked went to the end, because
--            a key of their queue is foreign; and the queues whose keys are needed to continue
-- TWICE      continues with what is left: each job is notified of each parent once
-- COST       O(M log F), F pairs of followers; M of them resolved, at most 200
-- @include server_time
-- @include notify_watchers
-- @include note_end
-- @include make_ready
-- @include forget_parents
-- @include fail_dependent
-- @include count_waiting
local FIRST_QUEUE, FIRST_NAME, PARTS = 12, 2, 3  -- KEYS of the queues; ARGV of their names; KEYS of each queue

local news, bodies, states, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local watchers, parents, children, followers, outcomes = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local waiting, inboxes = KEYS[11], ARGV[1]
local now_ms = math.floor(server_time() / 1000)

-- All queues are read before one is changed.  A queue with a foreign key delays its own jobs, and no others.
local place = {}
for i = FIRST_NAME, #ARGV do
  local first = FIRST_QUEUE + (i - FIRST_NAME) * PARTS
  place[ARGV[i]] = first
  for key = first, first + 2 do
    if type(redis.pcall(key == first + 2 and 'ZCARD' or 'LLEN', KEYS[key])) ~= 'number' then
      place[ARGV[i]] = 0
    end
  end
end

local kept, stuck, names, seen = {}, {}, {}, {}
local function start(id, delay_ms, name)
  local first = place[name]
  if first == 0 then
    stuck[#stuck + 1] = id
    return
  elseif first then
    count_waiting(waiting, name, -1)
    make_ready(KEYS[first], KEYS[first + 1], KEYS[first + 2], states, id, delay_ms, now_ms, name)
    return
  end
  kept[#kept + 1] = id
  if not seen[name] then
    seen[name] = true
    names[#names + 1] = name
  end
end

local function tell(child, parent, outcome)
  local pending, delay_ms, name = string.match(redis.call('HGET', states, child) or '', '^waiting (%d+) (%d+) (.*)$')
  if not pending then
    return  -- it was cancelled, or dead-lettered for another parent
  end
  if string.sub(outcome, 1, 10) == 'succeeded ' then
    redis.call('HSET', states, child, 'waiting ' .. (pending - 1) .. ' ' .. delay_ms .. ' ' .. name)
    if pending == '1' then
      start(child, delay_ms, name)
    end
  else
    redis.call('HDEL', states, child)
    count_waiting(waiting, name, -1)
    local reason = fail_dependent(dead, reasons, child, now_ms, parent, outcome, name)
    notify_watchers(watchers, inboxes, child)
    note_end(parents, children, outcomes, news, child, 'failed ' .. reason)
  end
end

local left = 100
for _, id in ipairs(redis.call('LPOP', news, 100) or {}) do
  local delay_ms, name = string.match(redis.call('HGET', states, id) or '', '^waiting 0 (%d+) (.*)$')
  local outcome = redis.call('HGET', outcomes, id)
  if delay_ms then
    start(id, delay_ms, name)
  elseif left <= 0 then
    kept[#kept + 1] = id
  else
    local pairs_told = {}
    if outcome then
      pairs_told = redis.call('ZRANGEBYLEX', followers, '[' .. id .. ' ', '(' .. id .. '!', 'LIMIT', 0, left)
    end
    for _, pair in ipairs(pairs_told) do
      redis.call('ZREM', followers, pair)
      tell(string.sub(pair, #id + 2), id, outcome)
    end
    left = left - #pairs_told
    if left <= 0 then
      kept[#kept + 1] = id  -- it may have more children
    elseif redis.call('HEXISTS', bodies, id) == 0 then
      left = left - forget_parents(parents, children, followers, outcomes, id)
    end
  end
end
for i = #kept, 1, -1 do
  redis.call('LPUSH', news, kept[i])
end
if #stuck > 0 then
  redis.call('RPUSH', news, unpack(stuck))
end
return {redis.call('LLEN', news), #stuck, unpack(names)}
