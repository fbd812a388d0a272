-- tasks/end_expired: dead-letter those of some jobs that have expired while they were in a queue, or waited for others.
--
-- KEYS  queue delayed bodies states dead reasons facts watchers waiting pending unfollowed places held_back
-- PLUGS on_end on_dead
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  name     of the queue; '' to look at those only that wait for others
-- ARGV  ids..    of the jobs, 1 to 250, in this queue or waiting for others
-- MOVES    queue: expired; waiting: expired; new: put_after
-- RETURNS  {looked, has_news, id, ...}: at how many of the ids it looked, fewer than given if these have 1 MiB; 1 if
--          dependents must be notified, otherwise 0; and those that it dead-lettered
-- TWICE    dead-letters none of them again, and those that have expired since
-- COST     O(N (P + log D)), N ids, P their places in the queue, D dead jobs
-- @include server_time
-- @include expiry_of
-- @include read_facts
-- @include bury
-- @include head_of
-- @include count_waiting
local MOST_BYTES, AT_ONCE = 1048576, 16  -- bodies that are read in one go
local now_ms = math.floor(server_time() / 1000)

-- @guard queue:list delayed:zset dead:zset on_end
local some_are_held_back = redis.call('ZCARD', held_back) > 0

-- Takes it from where it is.  Returns the name of its queue; nil if it is elsewhere, or is left to the worker that claims it,
-- because it may be about to take a place, or is to be undone.
local function take(id, body)
  local state = redis.call('HGET', states, id)
  local its_queue = string.match(state or '', '^waiting %S+ (.*)$')
  if redis.call('HEXISTS', keys.undo, id) == 1 or not its_queue and (state or name == '' or redis.call('ZSCORE', dead, id)) then
    return nil
  elseif its_queue then
    count_waiting(waiting, its_queue, -1)
    return its_queue
  end
  local _, _, limits = head_of(body)
  local key = limits and string.match(limits, '/s:(%x+)')
  local has_turn = key and redis.call('HGET', places, '@' .. key) == id
  local is_left = has_turn or limits and (some_are_held_back or string.find(limits, '/[og]:'))
  if is_left then
    return nil
  elseif tonumber(redis.call('ZSCORE', delayed, id) or 0) < 0 then  -- it lies among those of its priority
    return redis.call('ZREM', delayed, id) == 1 and name
  end
  return redis.call('LREM', queue, 1, id) == 1 and name or nil
end

local jobs = {}
local function end_if_expired(id, body)
  local ends_ms, expires, is_deadline = expiry_of(body)
  local its_queue = ends_ms and now_ms > ends_ms and take(id, body)
  if not its_queue then
    return
  end
  local known = read_facts(redis.call('HGET', facts, id))
  local attempts = known.failures + known.crashes
  for _, key in ipairs({states, pending, unfollowed}) do
    redis.call('HDEL', key, id)
  end
  local shown = string.gsub(id, '[%c"\\]', function(c) return string.format('\\u%04x', string.byte(c)) end)
  local reason = string.format(
    '{"reason":"JobExpired: job %s was not %s within %g s; replay it if it is still wanted","traceback":"","attempts":%d}',
    shown, is_deadline and 'done' or 'started', expires, attempts)
  jobs[#jobs + 1] = {id = id, reason = reason, queue = its_queue, attempts = attempts, began_ms = ''}
end

local next_id, bytes = IDS, 0
while next_id <= #ARGV and bytes < MOST_BYTES do
  local some = {unpack(ARGV, next_id, math.min(next_id + AT_ONCE - 1, #ARGV))}
  for n, body in ipairs(redis.call('HMGET', bodies, unpack(some))) do
    bytes = bytes + #(body or '')
    end_if_expired(some[n], body)
  end
  next_id = next_id + #some
end
if #jobs > 0 then
  bury(keys, jobs, now_ms, inboxes)
end
local answer = {next_id - IDS, 0}
for _, job in ipairs(jobs) do
  answer[#answer + 1], answer[2] = job.id, job.is_news and 1 or answer[2]
end
return answer
