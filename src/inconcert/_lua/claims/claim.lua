-- claims/claim: take jobs from the queues, in their order, for a worker.
--
-- @only jobs
-- KEYS  places held_back undo
-- @end
-- KEYS  states paused
-- KEYS  bodies workers claimed facts clock alive queues..
--       claimed: hash  id -> 'position attempt since_ms queue-name', and '#' -> 'number id ...' of the last claim; of this
--         worker; the positions rise from job to job
--       queues: list, then its bell (list) and delayed (zset), for each queue, the most urgent first
-- ARGV  worker    string
-- ARGV  number    integer > 0, one more with each claim of this worker
-- ARGV  count     number from 1 to 500; fewer are claimed if they have 1 MiB
-- ARGV  suspects  number, 1 or 0: how many jobs it may take with which two workers have died
-- ARGV  names..   of each queue, in the same order
-- MOVES    queue: claimed held_back; delayed: admitted
-- RETURNS  {1, next_ms, claimed_ms, count, queues, id, body, ..., nth, position, attempt, failed, is_cancelled, flags, ...}:
--          milliseconds until there is something to do again, such as a delayed job that is due, -1 if there is nothing; when
--          these jobs were claimed, by the first run; how many; the name of the queue of all, or {queue-name, how many, ...};
--          each job; then more of those that were tried before, have flags, see flag.lua, or that somebody wants cancelled:
--          which of the jobs it is, from 0, its position, which attempt this is, and how many attempts failed. There is more of
--          each that is answered again; the position of any other is 1000 number + 1 for the first, and so on
--          | {2, ...}: the same, and limits are in use: without plugs it has stopped at a job that has some
--          | {3, ...}: the same, and tasks/let_in may let some come
--          | {0}: this worker was presumed dead
-- TWICE    the jobs of the first run again, as far as they are not done, and no others; none after a later claim
-- COST     O(Q log D + count + G), Q queues with D delayed jobs, G ids of cancelled jobs and of suspects that are left,
--          about 1,000 at most, with plugs 500, and up to 499 more in each queue
-- @include server_time
-- @include last_claim
-- @include read_facts
-- @only jobs
-- @include parse_limits
-- @include pass_over
-- @include take_places
-- @include settle_places
-- @end
local HOUR_MS = 3600000
local PARTS = 3  -- keys of each queue
local HEAD, FIELDS, MORE = 5, 2, 6  -- parts of the answer before the jobs, of each job, and of each of which there is more
local FEW = 8  -- jobs, for which their states need not be a table
-- The server makes a text of a number by printf, which takes longer than all else for a job here.
local DIGIT = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'}
local AT_ONCE = 16  -- ids to look at in one go, each of which may have 1 MiB
local MOST_BYTES, SMALL = 1048576, 262144  -- of all that is claimed; of an answer that comes at once, see if_small.lua
local AFTER_TIME, BRACE, MINUS, byte = 15, 123, 45, string.byte  -- an envelope that begins there as JSON has no limits

-- Is this worker alive, and which claim is this?
local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local last_number, last, ends = last_claim(claimed, clock, alive, workers, worker)
if not last_number then
  return {0}
end
if last_number ~= number and tonumber(last_number) > tonumber(number) then
  return {1, -1, now_ms, 0, ''}  -- it was sent again long ago; this is the first sending, come late, and nobody listens
end

-- What is there? All queues are read before one is changed: a key that is not ours stops the script here.
local ready, rung, next_ms = {}, {}, -1
local ranked = {}  -- scores of ids that have a priority, by queue
local is_plain = redis.call('EXISTS', paused, facts) == 0
local some_are_paused = not is_plain and redis.call('EXISTS', paused) == 1
local some_have_facts = not is_plain and redis.call('HLEN', facts) > 0
local uses_limits = false
-- @only jobs
local limited = {places = places, held_back = held_back, states = states, undo = undo, now_us = now_us,
  some_undo = redis.call('HLEN', undo) > 0, parsed = {}, known = {}, rates = {}, turns = {}, orders = {}, taken = {}, held = {}, last = {}}
local some_are_limited = redis.call('HLEN', places) > 0
-- @guard held_back:zset
-- @end
for i = QUEUES, #KEYS, PARTS do
  ready[i] = redis.call('LLEN', KEYS[i])
  rung[i] = redis.call('LINDEX', KEYS[i + 1], 0) == '1'
  if some_are_paused and redis.call('SISMEMBER', paused, ARGV[NAMES + (i - QUEUES) / PARTS]) == 1 then
    ready[i] = 0
  end
  local due = redis.call('ZRANGEBYSCORE', KEYS[i + 2], '-inf', '(4e15', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if due and byte(due) == MINUS then  -- it is ready, and has a priority: see rank.lua
    if not some_are_paused or redis.call('SISMEMBER', paused, ARGV[NAMES + (i - QUEUES) / PARTS]) == 0 then
      ranked[i], ready[i] = {}, ready[i] + redis.call('ZCOUNT', KEYS[i + 2], '-inf', '(0')
    end
    due = redis.call('ZRANGEBYSCORE', KEYS[i + 2], 0, '(4e15', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  end
  if due and (next_ms < 0 or due - now_ms < next_ms) then
    next_ms = math.max(0, due - now_ms)
  end
end

-- Take: what the last claim took if this is the same again, otherwise from the queues.
local ids, texts, taken, bytes = {}, {}, 0, 0  -- bytes of all that is claimed
local old_positions, state_of = {}, {}  -- of a claim that comes again
local names, last_of = {}, {}  -- of each queue from which some are taken, one after the other; of these the last
local claimed_ms = now_ms
if last_number == number then
  for id in string.gmatch(last, ' (%S+)') do
    local position, since, name = string.match(redis.call('HGET', claimed, id) or '', '^(%d+) %d+ (%d+) (.*)$')
    if position then
      claimed_ms = tonumber(since)
      taken = taken + 1
      ids[taken], texts[taken], old_positions[taken] = id, redis.call('HGET', bodies, id), position
      state_of[taken], bytes = redis.call('HGET', states, id), bytes + #(texts[taken] or '')
      if names[#names] ~= name then
        names[#names + 1] = name
      end
      last_of[#names] = taken
    end
  end
  for i = QUEUES, #KEYS, PARTS do
    if taken < count and ready[i] > 0 then
      next_ms = 0  -- as the first run may have said
    end
  end
else
  local most = math.ceil(3000 / (#KEYS - QUEUES + 1))  -- ids to look at in each queue: about 1,000 in all of them together
  -- @only jobs
  most = math.ceil(most / 2)  -- one that is held back takes 0.07 ms
  -- @end
  local is_full = false  -- there is enough, or it has stopped
  for i = QUEUES, #KEYS, PARTS do
    local left, popped, unseen, came = {}, 0, 0, 0
    local name = ARGV[NAMES + (i - QUEUES) / PARTS]
    repeat
      while taken < count and not is_full and ready[i] > 0 and popped < most do
        local found
        if ranked[i] then
          -- @block take_ready
          found = take_ready(KEYS[i], KEYS[i + 2], math.min(AT_ONCE, count - taken), ranked[i])
        end
        found = found or redis.call('LPOP', KEYS[i], math.min(AT_ONCE, count - taken))
        local facts_of = some_have_facts and redis.call('HMGET', facts, unpack(found)) or {}
        -- @only jobs
        local states_of = some_are_limited and redis.call('HMGET', states, unpack(found)) or {}
        -- @end
        for n, text in ipairs(redis.call('HMGET', bodies, unpack(found))) do
          local is_suspect = facts_of[n] and read_facts(facts_of[n]).crashes >= 2
          -- @only plain
          local has_limits = text and byte(text, AFTER_TIME) ~= BRACE and string.find(text, '^%d+ %d+/')
          uses_limits = uses_limits or has_limits or not text and facts_of[n]  -- that had some when it was cancelled
          is_full = is_full or uses_limits
          -- @end
          if text and is_full then
            left[#left + 1], unseen = found[n], unseen + 1  -- for the next claim
          elseif text and is_suspect and suspects == 0 then
            left[#left + 1] = found[n]  -- for later, or for another worker: together they would die together
          -- @only plain
          elseif not text and is_full then
            left[#left + 1], unseen = found[n], unseen + 1
          elseif text then
          -- @end
          -- @only jobs
          elseif text and (byte(text, AFTER_TIME) == BRACE or take_places(limited, found[n], text, states_of[n])) then
          -- @end
            suspects, bytes, taken = suspects - (is_suspect and 1 or 0), bytes + #text, taken + 1
            ids[taken], texts[taken] = found[n], text
            is_full = bytes >= MOST_BYTES
          -- @only jobs
          elseif not text and some_are_limited then
            local limits = string.match(redis.call('HGET', places, found[n]) or '', '^%-(.+)$')
            if limits then  -- it was cancelled, and may have been about to take a place, or had the turn
              redis.call('HDEL', places, found[n])
              redis.call('HDEL', facts, found[n])
              pass_over(limited, found[n], parse_limits(limited.parsed, limits), 0)
              local order = redis.call('HGET', places, '=' .. found[n])
              if order then
                limited.orders[order] = found[n]
              end
            end
          -- @end
          end
        end
        ready[i], popped = ready[i] - #found, popped + #found
      end
      -- @only jobs
      local some_left = next(limited.known) or next(limited.rates) or next(limited.turns) or next(limited.orders) or limited.held[1]
      came = some_left and settle_places(limited, {KEYS[i], false, KEYS[i + 2], facts = facts}, name) or 0
      ready[i] = ready[i] + came
      ranked[i] = ranked[i] or came > 0 and {} or nil  -- some of these may have a priority
      -- @end
    until came == 0 or taken == count or is_full or popped >= most
    ready[i] = ready[i] + unseen
    if taken > (last_of[#names] or 0) then
      names[#names + 1], last_of[#names + 1] = name, taken
    end
    if taken < count and (came > 0 or ready[i] > 0 and (#left == 0 or is_full)) then
      next_ms = 0  -- so many were cancelled or held back, or they are so large, that the rest is for the next claim
    end
    if taken < count and ready[i] > 0 and #left > 0 and not is_full then
      redis.call('RPUSH', KEYS[i], unpack(left))  -- so many that others hide behind them, and nobody is woken for these
      ready[i] = 0
    else
      for n = #left, 1, -1 do
        local score = ranked[i] and ranked[i][left[n]]
        if score then
          redis.call('ZADD', KEYS[i + 2], score, left[n])
        else
          redis.call('LPUSH', KEYS[i], left[n])
        end
      end
    end
  end
  -- @only jobs
  local due_ms = limited.due_ms
  if due_ms and (next_ms < 0 or due_ms - now_ms < next_ms) then
    next_ms = due_ms - now_ms
  end
  -- @end
end

-- Answer, and note what was taken.
-- @only jobs
uses_limits = redis.call('EXISTS', places) == 1
local some_are_to_be_let_in = limited.asks or last_number == number and redis.call('HEXISTS', places, '+') == 1
-- @end
local queues = names[2] and {} or names[1] or ''
for k = 1, names[2] and #names or 0 do
  queues[2 * k - 1], queues[2 * k] = names[k], last_of[k] - (last_of[k - 1] or 0)
end
local answer = {uses_limits and 2 or 1, next_ms, claimed_ms, taken, queues}
-- @only jobs
answer[1] = some_are_to_be_let_in and 3 or answer[1]
-- @end
local claims = {'#', number .. ' ' .. table.concat(ids, ' ')}
local last_part = HEAD + FIELDS * taken
local running, runs = {}, 'running ' .. worker
local facts_of = some_have_facts and taken > 0 and redis.call('HMGET', facts, unpack(ids)) or {}
for k, name in ipairs(names) do
  local since = string.format(' %.0f ', now_ms) .. name
  local usual, start = ' 1' .. since, nil
  for i = (last_of[k - 1] or 0) + 1, last_of[k] do
    local id, unit, about, state = ids[i], i % 10, usual, state_of[i]
    if not start or unit == 0 then
      start = string.format('%s%02d', number, (i - unit) / 10)
    end
    local failed, attempt, flags = 0, 1, ''
    if facts_of[i] then
      local read = read_facts(facts_of[i])
      failed, attempt, flags = read.failures, read.failures + read.crashes + 1, read.flags
      about = ' ' .. attempt .. since
      state = state or string.find(flags, 'x') and redis.call('HGET', states, id)
    end
    local is_cancelled = state and string.sub(state, 1, 10) == 'cancelling'
    claims[2 * i + 1], claims[2 * i + 2] = id, start .. DIGIT[unit] .. about
    running[2 * i - 1], running[2 * i] = id, is_cancelled and 'cancelling ' .. worker or runs
    local at = HEAD + FIELDS * (i - 1)  -- each part by itself: a table of them would take 0.5 us more
    answer[at + 1], answer[at + 2] = id, texts[i]
    if facts_of[i] or old_positions[i] then
      answer[last_part + 1], answer[last_part + 2], answer[last_part + 3] = i - 1, tonumber(old_positions[i] or number * 1000 + i), attempt
      answer[last_part + 4], answer[last_part + 5], answer[last_part + 6] = failed, is_cancelled and 1 or 0, flags
      last_part = last_part + MORE
    end
  end
end

if last_number ~= number then
  redis.call('HSET', claimed, unpack(claims))
  if taken > FEW then  -- a field of more than 64 bytes makes the hash a table; otherwise the server walks through it for each
    running[2 * taken + 1], running[2 * taken + 2] = string.rep('#', 65), ''
    redis.call('HSET', states, unpack(running))
    redis.call('HDEL', states, running[2 * taken + 1])
  elseif taken > 0 then
    redis.call('HSET', states, unpack(running))
  end
  if taken == 0 and not last then
    redis.call('PEXPIRE', claimed, HOUR_MS)
  elseif taken > 0 and (redis.call('PERSIST', claimed) == 1 or not last) then  -- it held nothing, see fall_idle.lua
    redis.call('ZADD', workers, ends, worker)
  end
  for i = QUEUES, #KEYS, PARTS do
    if ready[i] > 0 and not rung[i] then
      -- @block ring
      ring(KEYS[i + 1])  -- work is left behind: the next idle consumer wakes, one after the other
    end
  end
end
local has_room = false
if bytes > SMALL and not has_room then
  return redis.error_reply('LARGE ' .. bytes)
end
return answer
