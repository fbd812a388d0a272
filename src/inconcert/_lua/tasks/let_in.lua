-- tasks/let_in: lets jobs come to their queues that wait for a limit or a rate which several tasks share, or of which each takes
-- its own part; the one first that was enqueued first, at most 100.
--
-- KEYS  bodies states facts places held_back queues..
--       queues: list, then its bell (list) and delayed (zset), for each queue
-- ARGV  names..  of each queue, in the same order
-- MOVES    delayed: admitted
-- RETURNS  {next_ms, name, ...}: milliseconds until it is to be run again, 0 for at once with these queues, -1 when a job ends;
--          and the queues of which jobs wait
-- TWICE    lets those in that may come by then
-- COST     O(L (log L + log N)), L lines, N jobs in them
-- @include admit_next
-- @include count_let_in
-- @include head_of
-- @include keep_waits
-- @include let_in_of
-- @include parse_limits
-- @include read_limit
-- @include read_rate
-- @include read_waits
-- @include put_ready
-- @include ring
-- @include room_at
-- @include server_time
-- @include stored_limit
local MOST, PARTS = 100, 3
local KEPT_MS = 1000  -- how long a place is kept for a job that was let in: its workers may be busy, or its queue paused
local PAUSE_MS = 10000  -- after that, until one more of its line is let in

local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local limited = {places = places, now_us = now_us, known = {}, rates = {}, parsed = {}}
local waits = read_waits(limited)
local queue_of, names, is_named = {}, {}, {}
local is_awaited = {}  -- rates that gather room for the first in line: those behind it take none
for i = QUEUES, #KEYS, PARTS do
  queue_of[ARGV[NAMES + (i - QUEUES) / PARTS]] = {list = KEYS[i], bell = KEYS[i + 1], delayed = KEYS[i + 2], ids = {}}
end

local function read_first(wait)
  local from, to = '[' .. wait.line .. ' ', '(' .. wait.line .. '!'
  wait.member = nil
  for _, member in ipairs(redis.call('ZRANGEBYLEX', held_back, from, to, 'LIMIT', 0, 1)) do
    local order, id = string.match(member, '^%x+ (%d+) (.*)$')
    local put_ms, _, text = head_of(redis.call('HGET', bodies, id))
    wait.member, wait.order, wait.id, wait.put_ms = member, tonumber(order), id, tonumber(put_ms)
    wait.its, wait.name = parse_limits(limited.parsed, text).wait, string.sub(redis.call('HGET', states, id), 9)  -- after 'delayed '
  end
end

-- Whether the first in this line may begin; if not, since when it might, if that is known.  No room gathers for one of a line of
-- which those that were let in are not claimed: its queue may be paused.
local function has_room(wait, is_late)
  local now_let_in = wait.until_ms > now_ms and wait.count or 0
  local cost_let_in = wait.until_ms > now_ms and wait.cost or 0
  local its = wait.its
  local known = its.named and stored_limit(limited, its.named, wait.put_ms)
  local rate = its.rate and read_rate(limited.rates, places, its.rate, wait.put_ms, now_us)
  local count, cost = let_in_of(limited, its)
  local at_us = rate and room_at(rate, cost + cost_let_in, its.cost) or 0
  if known and known.count + count + now_let_in >= known.most then
    return false, count + now_let_in > 0 and now_ms + KEPT_MS or nil
  end
  if is_awaited[its.of_rate] then
    return false
  end
  is_awaited[its.of_rate] = rate and at_us > now_us and not is_late
  return at_us <= now_us, math.ceil(at_us / 1000)
end

-- All are read before one is changed: a key that is not ours stops the script here.
local are_all_here = true
for _, wait in ipairs(waits) do
  read_first(wait)
  if wait.member and not is_named[wait.name] then
    local queue = queue_of[wait.name]
    names[#names + 1], is_named[wait.name], are_all_here = wait.name, true, are_all_here and queue ~= nil
    if queue then
      redis.call('LLEN', queue.list)
      redis.call('LLEN', queue.bell)
      redis.call('ZCARD', queue.delayed)
    end
  end
end
if not are_all_here then
  return {0, unpack(names)}
end

local next_at, left = nil, MOST
local function look_at(ms)
  next_at = math.min(ms, next_at or ms)
end
local in_order, at = {}, 1  -- lines by their first job; those before `at` are full
for _, wait in ipairs(waits) do
  in_order[#in_order + 1] = wait.member and wait or nil
end
table.sort(in_order, function(one, other)
  return one.order < other.order
end)
while in_order[at] and left > 0 do
  local first = in_order[at]
  local is_late = first.count > 0 and first.until_ms <= now_ms  -- those that were let in are not claimed
  local may_come, at_ms = false, first.until_ms + PAUSE_MS
  if not is_late or at_ms <= now_ms then
    may_come, at_ms = has_room(first, is_late)
  end
  if may_come then
    count_let_in(limited, first, -1)
    if is_late then
      first.count, first.cost = 0, 0
    end
    local queue = queue_of[first.name]
    local delayed = queue.delayed
    redis.call('ZREM', held_back, first.member)
    redis.call('ZREM', delayed, first.id)
    redis.call('HDEL', states, first.id)
    table.insert(queue.ids, 1, first.id)
    first.count, first.cost, first.until_ms = first.count + 1, first.cost + first.its.cost, now_ms + KEPT_MS
    waits.have_changed, left = true, left - 1
    count_let_in(limited, first, 1)
    read_first(first)
    local to = at
    while first.member and in_order[to + 1] and in_order[to + 1].order <= first.order do
      in_order[to], to = in_order[to + 1], to + 1
    end
    in_order[to], at = first, first.member and at or at + 1
  else
    at = at + 1
    if at_ms then
      look_at(at_ms)
    end
  end
end

for _, queue in pairs(queue_of) do
  if queue.ids[1] then
    put_ready(facts, queue.list, queue.delayed, queue.ids, 'LPUSH')
    ring(queue.bell)
  end
end
limited.waits = {have_changed = waits.have_changed}
for _, wait in ipairs(waits) do
  if wait.member or wait.count > 0 and wait.until_ms > now_ms then
    limited.waits[#limited.waits + 1] = wait
    if not wait.member then
      look_at(wait.until_ms)
    end
  else
    limited.waits.have_changed = true
  end
end
keep_waits(limited)
local is_seen = {['-'] = true}
for _, wait in ipairs(waits) do
  if not is_seen[wait.limit] then
    is_seen[wait.limit] = true
    admit_next(places, held_back, states, {}, wait.limit, read_limit(redis.call('HGET', places, wait.limit)), 0)
  end
end
if left == 0 then
  next_at = now_ms
end
return {next_at and math.max(0, next_at - now_ms) or -1, unpack(names)}
