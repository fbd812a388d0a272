-- claims/recover: give what a worker holds that is dead, or retires, back to the front of its queues.
--
-- KEYS[1]    workers      zset    worker -> when it is presumed dead, ms by the lease clock; of those that hold something
-- KEYS[2]    claimed      hash    id -> 'place attempt since_ms queue-name'; of that worker
-- KEYS[3]    crashes      hash    id -> workers that died with it
-- KEYS[4]    dead         zset    id -> when it was dead-lettered, server ms
-- KEYS[5]    reasons      hash    id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[6]    states       hash    id -> where it is, if not in its queue
-- KEYS[7]    progress     hash    id -> 'NUMBER JSON': its progress
-- KEYS[8]    watchers     zset    'id address': which processes wait for its end
-- KEYS[9]    parents      hash    id -> ids of the jobs that it runs after
-- KEYS[10]   children     zset    'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[11]   outcomes     hash    id -> what became of a job that has children
-- KEYS[12]   news         list    ids of jobs that have ended, or may run now, which nobody has seen to yet
-- KEYS[13]   line         zset    address -> ticket: those who wait for room to put something in
-- KEYS[14]   clock        string  'AT SEEN': the lease clock, ms, and the server's at the last look, ms
-- KEYS[15]   idle         zset    worker -> when it is presumed dead, ms by the lease clock; of those that hold nothing
-- KEYS[16]   described    hash    worker -> 'heard_ms ABOUT': when it was last heard, and what it says of itself; 1 h
-- KEYS[17]   bodies       hash    id -> 'enqueued_ms [max_crashes[/LIMITS]] envelope'
-- KEYS[18]   groups       hash    group -> what has become of it; see read_group.lua
-- KEYS[19]   settled      zset    group -> when to forget it, server ms; of those that have ended
-- KEYS[20]   joiners      zset    address -> when it asked, server ms: those that wait until no item is left; 60 s
-- KEYS[21]   undo         hash    id -> '-' of a job that has something to undo | 'failed JSON' or 'cancelled ': how it ends
--            once that is undone
-- KEYS[22]   failures     hash    id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[23]   places       hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[24]   held_back    zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[25]   history      zset    how the last jobs of a task ended; see tasks/history.lua
-- KEYS[26..] queues       list, then its bell (list) and delayed (zset), for each queue from which it has claimed
-- ARGV[1]    worker       string
-- ARGV[2]    max_crashes  integer > 0: what killed so many workers is dead-lettered, unless its body says how many | 0: the
--            worker retires, and that is no crash
-- ARGV[3]    inboxes      what the channel of each session's inbox begins with
-- ARGV[4..]  names        of each queue, in the same order
-- RETURNS    {back, dead, told}: how many were requeued, and dead-lettered; 1 if others are to be told of these
--            | {-1, 0, 0}: the worker is alive
-- TWICE      {0, 0, 0}: it holds nothing any more
-- COST       O(N log N), N jobs claimed
-- @include server_time
-- @include dead_letter
-- @include notify_watchers
-- @include requeue
-- @include free_places
-- @include note_end
-- @include wake_first_putter
-- @include tell_joiners
-- @include record_end
-- @include history_of
local workers, claimed, crashes, dead, reasons = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local states, progress, watchers = KEYS[6], KEYS[7], KEYS[8]
local line, joiners, undo, failures, places, held_back = KEYS[13], KEYS[20], KEYS[21], KEYS[22], KEYS[23], KEYS[24]
local clock, idle, described, history = KEYS[14], KEYS[15], KEYS[16], KEYS[25]
local keys = {
  parents = KEYS[9], children = KEYS[10], outcomes = KEYS[11], news = KEYS[12], groups = KEYS[18], settled = KEYS[19],
}
local FIRST_QUEUE, PARTS, FIRST_NAME = 26, 3, 4  -- KEYS of the queues, and how many each has; ARGV of their names
local bodies, worker, max_crashes, inboxes = KEYS[17], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now_ms = math.floor(server_time() / 1000)
local ends = redis.call('ZSCORE', workers, worker) or redis.call('ZSCORE', idle, worker)
local at_ms = string.match(redis.call('GET', clock) or '0 ', '^(%S+) ')
if max_crashes > 0 and ends and tonumber(ends) > tonumber(at_ms) then
  return {-1, 0, 0}
end
-- Where they may go is read before anything is changed: a key that is not ours stops the script here.
redis.call('ZCARD', dead)
redis.call('HLEN', keys.groups)
redis.call('ZCARD', keys.settled)
redis.call('HLEN', undo)
redis.call('HLEN', places)
redis.call('ZCARD', held_back)
redis.call('ZCARD', history)
for i = FIRST_QUEUE, #KEYS, PARTS do
  redis.call('LLEN', KEYS[i])
  redis.call('LLEN', KEYS[i + 1])
  redis.call('ZCARD', KEYS[i + 2])
end
local place = {}
for i = FIRST_NAME, #ARGV do
  place[ARGV[i]] = FIRST_QUEUE + (i - FIRST_NAME) * PARTS
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
    local count = max_crashes > 0 and redis.call('HINCRBY', crashes, id, 1) or 0
    local body = count > 0 and redis.call('HGET', bodies, id) or ''
    local most = string.match(body, '^%d+ (%d+)[ /]') or max_crashes
    local is_last = count > 0 and count >= tonumber(most)
    if is_last and redis.call('HGET', undo, id) == '-' then
      redis.call('HSET', undo, id, 'failed ' .. reason_of(count, job[4]))
      redis.call('HDEL', crashes, id)
      redis.call('HDEL', failures, id)
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
