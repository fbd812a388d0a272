-- queues/get: take items from a queue for a worker.
--
-- KEYS  bodies workers claimed facts clock alive queue bell delayed
--       claimed: hash  id -> 'position attempt since_ms ', and '#' -> 'number id ...' of the last claim; of this worker; the
--         positions rise from item to item
-- ARGV  worker    string
-- ARGV  number    integer > 0, one more with each claim of this worker
-- ARGV  count     number from 1 to 500; fewer are claimed if they have 1 MiB
-- ARGV  suspects  number, 1 or 0: how many items it may take with which two workers have died
-- MOVES    queue: claimed
-- RETURNS  {1, next_ms, claimed_ms, count, '', id, body, ..., nth, position, attempt, failed, 0, '', ...}: as claims/claim does
--          | {0}: this worker was presumed dead
-- TWICE    the items of the first run again, as far as they are not done, and no others; none after a later claim
-- COST     O(log D + count), D delayed items; it looks at about 1,000 ids
local HOUR_MS = 3600000
local HEAD, FIELDS, MORE = 5, 2, 6  -- parts of the answer before the items, of each item, and of each of which there is more
local AT_ONCE, MOST = 16, 1000  -- ids to look at in one go, each of which may have 1 MiB; in all
local MOST_BYTES, SMALL = 1048576, 262144  -- of all that is claimed; of an answer that comes at once, see if_small.lua

-- Is this worker alive, and which claim is this?
local time = redis.call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-- @include last_claim
local last_number, last, ends = last_claim(claimed, clock, alive, workers, worker)
if not last_number then
  return {0}
end
if last_number ~= number and tonumber(last_number) > tonumber(number) then
  return {1, -1, tonumber(now_ms), 0, ''}  -- it was sent again long ago; this is the first sending, come late, and nobody listens
end

-- What is there? All keys are read before one is changed: one that is not ours stops the script here.
local ready = redis.call('LLEN', queue)
local is_rung = redis.call('LINDEX', bell, 0) == '1'
local next_ms, some_have_facts = -1, redis.call('EXISTS', facts, delayed) > 0
if some_have_facts then  -- or some are delayed; most of the time neither is so
  local due = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')[2]
  next_ms, some_have_facts = due and math.max(0, due - now_ms) or -1, redis.call('HLEN', facts) > 0
end

-- Take: what the last claim took if this is the same again, otherwise from the queue.
local ids, texts, positions, known, bytes = {}, {}, {}, {}, 0  -- positions: those of a claim that comes again
if last_number == number then
  for id in string.gmatch(last, ' (%S+)') do
    local position, since = string.match(redis.call('HGET', claimed, id) or '', '^(%d+) %d+ (%d+)')
    if position then
      now_ms = since
      ids[#ids + 1], texts[#ids + 1], known[#ids + 1] = id, redis.call('HGET', bodies, id), redis.call('HGET', facts, id)
      positions[#ids], bytes = position, bytes + #(texts[#ids] or '')
    end
  end
  next_ms = #ids < count and ready > 0 and 0 or next_ms  -- as the first run may have said
else
  local left, hidden, looked = {}, 0, 0  -- left: those that it does not take; hidden: of these, those that others may
  while #ids < count and ready > 0 and looked < MOST and bytes < MOST_BYTES do
    local found = redis.call('LPOP', queue, math.min(AT_ONCE, count - #ids))
    local facts_of = some_have_facts and redis.call('HMGET', facts, unpack(found)) or {}
    for n, text in ipairs(redis.call('HMGET', bodies, unpack(found))) do
      local is_suspect = facts_of[n] and tonumber(string.match(facts_of[n], '^%l*%d? %d+ (%d+)')) >= 2
      if text and bytes >= MOST_BYTES then
        left[#left + 1], hidden = found[n], hidden + 1
      elseif text and is_suspect and suspects == 0 then
        left[#left + 1] = found[n]  -- for later, or for another worker: together they would die together
      elseif text then
        suspects, bytes = suspects - (is_suspect and 1 or 0), bytes + #text
        ids[#ids + 1], texts[#ids + 1], known[#ids + 1] = found[n], text, facts_of[n]
      end
    end
    ready, looked = ready - #found, looked + #found
  end
  ready = ready + hidden
  if #ids < count and ready > 0 and (#left == 0 or hidden > 0) then
    next_ms = 0  -- they are so large, or so many were purged, that the rest is for the next claim
  end
  if #ids < count and ready > 0 and #left > 0 and hidden == 0 then
    redis.call('RPUSH', queue, unpack(left))  -- so many that others hide behind them, and nobody is woken for these
    ready = 0
  else
    for n = #left, 1, -1 do
      redis.call('LPUSH', queue, left[n])
    end
  end
end

local answer, claims = {1, next_ms, tonumber(now_ms), #ids, ''}, {'#', number .. ' ' .. table.concat(ids, ' ')}
local last_part = HEAD + FIELDS * #ids
for i, id in ipairs(ids) do
  local attempt, failures, crashes = '1', '0', '0'
  if known[i] then
    failures, crashes = string.match(known[i], '^%l*%d? (%d+) (%d+)')
    attempt = failures + crashes + 1
  end
  local position = positions[i] or string.format('%s%03d', number, i)
  if known[i] or positions[i] then
    answer[last_part + 1], answer[last_part + 2], answer[last_part + 3] = i - 1, tonumber(position), tonumber(attempt)
    answer[last_part + 4], answer[last_part + 5], answer[last_part + 6] = tonumber(failures), 0, ''
    last_part = last_part + MORE
  end
  claims[2 * i + 1], claims[2 * i + 2] = id, position .. ' ' .. attempt .. ' ' .. now_ms .. ' '
  local at = HEAD + FIELDS * (i - 1)
  answer[at + 1], answer[at + 2] = id, texts[i]
end
if last_number ~= number then
  redis.call('HSET', claimed, unpack(claims))
  if #ids == 0 and not last then
    redis.call('PEXPIRE', claimed, HOUR_MS)
  elseif #ids > 0 and (redis.call('PERSIST', claimed) == 1 or not last) then  -- it held nothing, see fall_idle.lua
    redis.call('ZADD', workers, ends, worker)
  end
  if ready > 0 and not is_rung then
    -- @block ring
    ring(bell)  -- work is left behind: the next idle consumer wakes, one after the other
  end
end
local has_room = false
if bytes > SMALL and not has_room then
  return redis.error_reply('LARGE ' .. bytes)
end
return answer
