-- claims/recover: give what a worker holds that is dead, or retires, back to the front of its queues.
--
-- KEYS  workers claimed facts dead reasons states progress watchers parents children outcomes news line clock idle
-- KEYS  described bodies groups settled joiners undo places held_back history queues..
--       claimed: hash, of that worker
--       queues: list, then its bell (list) and delayed (zset), for each queue from which it has claimed
-- ARGV  worker       string
-- ARGV  max_crashes  number > 0: what killed so many workers is dead-lettered, unless its body says how many | 0: the
--                    worker retires, and that is no crash
-- ARGV  inboxes      what the channel of each session's inbox begins with
-- ARGV  names..      of each queue, in the same order
-- MOVES    claimed: lost killed; delayed: admitted
-- RETURNS  {back, dead, told}: how many were requeued, and dead-lettered; 1 if others are to be told of these
--          | {-1, 0, 0}: the worker is alive
-- TWICE    {0, 0, 0}: it holds nothing any more
-- COST     O(N log N), N jobs claimed
-- @include server_time
-- @include dead_letter
-- @include notify_watchers
-- @include requeue
-- @include free_places
-- @include note_end
-- @include wake_first_putter
-- @include tell_joiners
-- @include record_end
-- @include read_facts
-- @include write_facts
-- @include forget_attempts
-- @include flag
-- @include history_of
local PARTS = 3  -- keys of each queue
local now_ms = math.floor(server_time() / 1000)
local ends = redis.call('ZSCORE', workers, worker) or redis.call('ZSCORE', idle, worker)
local at_ms = string.match(redis.call('GET', clock) or '0 ', '^(%S+) ')
if max_crashes > 0 and ends and tonumber(ends) > tonumber(at_ms) then
  return {-1, 0, 0}
end
-- Where they may go is read before anything is changed: a key that is not ours stops the script here.
-- @guard dead:zset keys.groups:hash keys.settled:zset undo:hash places:hash held_back:zset history:zset
for i = QUEUES, #KEYS, PARTS do
  redis.call('LLEN', KEYS[i])
  redis.call('LLEN', KEYS[i + 1])
  redis.call('ZCARD', KEYS[i + 2])
end
local place = {}
for i = NAMES, #ARGV do
  place[ARGV[i]] = QUEUES + (i - NAMES) * PARTS
end

local function reason_of(count, attempts)
  local why = count .. (count == 1 and ' worker' or ' workers') .. ' died with it'
  return '{"reason":"' .. why .. '","attempts":' .. attempts .. '}'
end

redis.call('HDEL', claimed, '#')
local back, buried, told = 0, 0, 0
local jobs = {}
local entries = redis.call('HGETALL', claimed)
for i = 1, #entries, 2 do
  local at, attempt, since_ms, name = string.match(entries[i + 1], '^(%d+) (%d+) (%d+) (.*)$')
  jobs[#jobs + 1] = {entries[i], tonumber(at), name, attempt, since_ms}
end
table.sort(jobs, function(one, other) return one[2] > other[2] end)  -- so that the first claimed comes to the front
for _, job in ipairs(jobs) do
  local id, name = job[1], job[3]
  if place[name] then
    redis.call('HDEL', claimed, id)
    redis.call('HDEL', progress, id)
    free_places(places, held_back, states, {unpack(KEYS, place[name], place[name] + PARTS - 1)}, {id})
    local count = 0
    if max_crashes > 0 then
      local known = read_facts(redis.call('HGET', facts, id))
      count = known.crashes + 1
      known.crashes = count
      write_facts(facts, id, known)
    end
    local body = count > 0 and redis.call('HGET', bodies, id) or ''
    local most = string.match(body, '^%d+ (%d+)[ /]') or max_crashes
    local is_last = count > 0 and count >= tonumber(most)
    if is_last and redis.call('HGET', undo, id) == '-' then
      redis.call('HSET', undo, id, 'failed ' .. reason_of(count, job[4]))
      forget_attempts(facts, id)
      flag(facts, id, 'v')
      is_last = false
    end
    if is_last then
      redis.call('HDEL', states, id)
      local reason = reason_of(count, job[4])
      dead_letter(dead, reasons, id, now_ms, reason, name)
      notify_watchers(watchers, inboxes, id)
      record_end(history, history_of(body), id, 'failed ' .. reason, job[5], job[4])
      buried = buried + 1
      if note_end(keys, id, 'failed ' .. reason) then
        told = 1
      end
    else
      requeue(KEYS[place[name]], KEYS[place[name] + 1], states, watchers, inboxes, id)
      back = back + 1
    end
  end
end
if buried > 0 then
  wake_first_putter(line, inboxes)
  tell_joiners(joiners, bodies, dead, inboxes)
end
if redis.call('EXISTS', claimed) == 0 then
  redis.call('ZREM', workers, worker)
  redis.call('ZREM', idle, worker)
  redis.call('HDEL', described, worker)
end
return {back, buried, told}
