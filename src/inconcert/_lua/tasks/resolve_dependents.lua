-- tasks/resolve_dependents: notify waiters of a job's end, and make dependents without open parents ready.
--
-- KEYS  bodies states dead reasons facts watchers followers waiting pending unfollowed passing finished queues..
--       queues: list, then its bell (list) and delayed (zset), for each queue
-- PLUGS on_end on_dead
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  suffix   of the ids of this partition; '' if there are no others
-- ARGV  passer   string, unique to this call
-- ARGV  names..  of each queue, in the same order
-- MOVES    waiting: ready put_off orphaned; new: put_after
-- RETURNS  {left, waiting, {queue-name, ...}, {kind, parent, child, outcome, ...}, stuck}: how many news there are now; how
--          many of those checked went to the end, because others pass them on, or a key of their queue is foreign; the
--          queues whose keys are needed to continue; what other partitions are to know, within 5 s: 'follow' for the
--          parent, 'tell' for the child, 'forget' for the parent; how many of the waiting have a foreign key
-- TWICE    continues with what is left: each job is notified of each parent once; and the same again of what other
--          partitions are to know
-- COST     O(M log F), F pairs of followers; M of them resolved, at most 300
-- @include server_time
-- @include is_here
-- @include tell_child
-- @include make_ready
-- @include cut_delay
-- @include forget_parents
-- @include count_waiting
-- @include group_outcome
local PARTS = 3  -- keys of each queue
local PASSING_MS = 5000

local now_ms = math.floor(server_time() / 1000)

-- @guard keys.dead:zset on_end

-- All queues are read before one is changed.  A queue with a foreign key delays its own jobs, and no others.
local first_keys = {}
for i = NAMES, #ARGV do
  local first = QUEUES + (i - NAMES) * PARTS
  first_keys[ARGV[i]] = first
  redis.call('HSETNX', finished, ARGV[i], 0)  -- the names of all queues are there
  for key = first, first + 2 do
    if type(redis.pcall(key == first + 2 and 'ZCARD' or 'LLEN', KEYS[key])) ~= 'number' then
      first_keys[ARGV[i]] = 0
    end
  end
end

local kept, last, stuck, names, seen, work = {}, {}, 0, {}, {}, {}
local function start(id, delay_ms, name)
  local first = first_keys[name]
  if first == 0 then
    last[#last + 1], stuck = id, stuck + 1
    return
  elseif first then
    count_waiting(waiting, name, -1)
    delay_ms = cut_delay(bodies, id, delay_ms, now_ms)
    make_ready(keys.facts, KEYS[first], KEYS[first + 1], KEYS[first + 2], states, id, delay_ms, now_ms, name)
    return
  end
  kept[#kept + 1] = id
  if not seen[name] then
    seen[name] = true
    names[#names + 1] = name
  end
end

local some_are_passing = suffix ~= '' and redis.call('EXISTS', passing) == 1
local function is_passed_on(id)
  local other, until_ms = string.match(some_are_passing and redis.call('HGET', passing, id) or '', '^(%S+) (%d+)$')
  return other and other ~= passer and tonumber(until_ms) > now_ms
end

local function pass_on(id, kind, parent, child, outcome)
  if last[#last] ~= id then
    redis.call('HSET', passing, id, passer .. ' ' .. string.format('%.0f', now_ms + PASSING_MS))
    last[#last + 1] = id
  end
  for _, part in ipairs({kind, parent, child, outcome}) do
    work[#work + 1] = part
  end
end

local left = 100
local function resolve(id)
  local delay_ms, name = string.match(redis.call('HGET', states, id) or '', '^waiting (%d+)%S* (.*)$')
  local strangers = delay_ms and redis.call('HGET', unfollowed, id)
  if strangers then
    for parent in string.gmatch(strangers, '%S+') do
      pass_on(id, 'follow', parent, id, '')
      left = left - 1
    end
  elseif delay_ms and redis.call('HEXISTS', pending, id) == 0 then
    start(id, delay_ms, name)
  elseif delay_ms and string.find(id, '~then.', 1, true) then
    local group = string.gsub(id, '~then', '')
    local outcome = group_outcome(keys.groups, group)
    if outcome and tell_child(keys, inboxes, now_ms, id, group, outcome) then
      start(id, delay_ms, name)
    end
  elseif not delay_ms then
    local is_gone = redis.call('HEXISTS', bodies, id) == 0
    local outcome = redis.call('HGET', keys.outcomes, id) or is_gone and ''
    local pairs_told = {}
    if outcome then
      pairs_told = redis.call('ZRANGEBYLEX', followers, '[' .. id .. ' ', '(' .. id .. '!', 'LIMIT', 0, left)
    end
    for _, pair in ipairs(pairs_told) do
      local child = string.sub(pair, #id + 2)
      if is_here(child, suffix) then
        redis.call('ZREM', followers, pair)
        local child_delay_ms, child_name = tell_child(keys, inboxes, now_ms, child, id, outcome)
        if child_delay_ms then
          start(child, child_delay_ms, child_name)
        end
      else
        -- Of a chain its first cause goes with it; what else was raised stays here.
        local cause = string.match(outcome, '^failed {"reason":"its parent [^"]+"}') or string.match(outcome, '^%a* ?')
        pass_on(id, 'tell', id, child, cause)
      end
    end
    left = left - #pairs_told
    if last[#last] == id then
      return  -- it is looked at again when they have been told
    elseif left <= 0 then
      kept[#kept + 1] = id  -- it may have more children
    elseif is_gone then
      local count, elsewhere = forget_parents(keys.parents, keys.children, followers, keys.outcomes, id, suffix)
      for _, parent in ipairs(elsewhere) do
        pass_on(id, 'forget', parent, id, '')
      end
      left = left - count - #elsewhere
    end
  end
end

local checked = {}
for _, id in ipairs(redis.call('LPOP', keys.news, 100) or {}) do
  if not checked[id] and is_passed_on(id) then
    last[#last + 1] = id
  elseif not checked[id] and left <= 0 then
    kept[#kept + 1] = id
  elseif not checked[id] then
    resolve(id)
  end
  checked[id] = true
end
for i = #kept, 1, -1 do
  redis.call('LPUSH', keys.news, kept[i])
end
if #last > 0 then
  redis.call('RPUSH', keys.news, unpack(last))
end
return {redis.call('LLEN', keys.news), #last, names, work, stuck}
