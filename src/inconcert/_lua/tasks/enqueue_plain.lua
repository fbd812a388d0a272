-- tasks/enqueue_plain: add jobs to one queue that may run at once: without a unique name, a limit, or a job before them.
--
-- KEYS  bodies queue bell finished seen_even seen_odd
-- ARGV  queue_name  of the queue
-- ARGV  session     that enqueues them
-- ARGV  number      number of this request: a session counts its requests to a partition from 1
-- ARGV  jobs..      id, envelope: for each job, at most 500
-- MOVES    new: enqueued
-- RETURNS  1
-- TWICE    the same, and adds nothing; ten minutes after the session's last request, as long as one of the jobs is there
-- COST     O(N), N jobs given
local FEW = 16  -- jobs in the queue, for which bodies need not be a table
local time = redis.call('TIME')
local enqueued = string.format('%.0f ', time[1] * 1000 + math.floor(time[2] / 1000))
local seen, other = seen_even, seen_odd  -- they take turns every ten minutes
if time[1] % 1200 >= 600 then
  seen, other = other, seen
end
local ids, count = {}, 0
for i = JOBS, #ARGV, 2 do
  count = count + 1
  ids[count] = ARGV[i]
  ARGV[i + 1] = enqueued .. ARGV[i + 1]
end

-- A foreign key stops the script here, before anything is changed.
local first = redis.call('LINDEX', bell, 0)
local length = redis.call('RPUSH', queue, unpack(ids))
local last = redis.call('HINCRBY', seen, session, 1)
if last ~= number or number == 1 then  -- it comes again, or out of order, or as the first in these ten minutes
  local is_new, kept, gaps = true, '', session .. ' gaps'
  local known = last > 1 and seen or other
  local found = redis.call('HMGET', known, session, gaps)
  last = tonumber(found[1] or 0) - (known == seen and 1 or 0)
  if number > last then
    kept = found[2] or ''
    if number > last + 1 then
      kept = kept .. last + 1 .. '-' .. number - 1 .. ' '
    end
  else
    is_new = false
    for from, to in string.gmatch(found[2] or '', '(%d+)-(%d+)') do
      from, to = tonumber(from), tonumber(to)
      if from <= number and number <= to then
        is_new = true
        kept = kept .. (from < number and from .. '-' .. number - 1 .. ' ' or '')
        from = number + 1
      end
      kept = kept .. (from <= to and from .. '-' .. to .. ' ' or '')
    end
  end
  while #kept > 2000 do
    kept = string.match(kept, ' (.*)')  -- without the oldest
  end
  for _, id in ipairs(ids) do
    is_new = is_new and redis.call('HEXISTS', bodies, id) == 0  -- also if the session was forgotten
  end
  redis.call('HDEL', other, session, gaps)  -- a session is in one of them
  redis.call('HDEL', seen, gaps)
  redis.call('HSET', seen, session, math.max(number, last), unpack(kept ~= '' and {gaps, kept} or {}))
  if redis.call('PTTL', seen) < 0 then
    redis.call('PEXPIRE', seen, (1199 - time[1] % 600) * 1000)  -- it is empty when its turn comes again
  end
  if not is_new then
    redis.call('LTRIM', queue, 0, -1 - count)
    return 1
  end
end
-- The server walks through a hash of few small fields. One of more than 64 bytes makes it a table, as long as the hash exists.
local long = length > FEW and length - count <= FEW and string.rep('#', 65)
if long then
  redis.call('HSET', bodies, long, '')
end
redis.call('HSET', bodies, unpack(ARGV, JOBS))
if long then
  redis.call('HDEL', bodies, long)
end
if length == count then
  redis.call('HSETNX', finished, queue_name, 0)  -- the names of all queues are there
end
if not first then  -- as ring() does
  redis.call('RPUSH', bell, '1')
  redis.call('PEXPIRE', bell, 60000)
end
if not first or first == '1' then
  return 1
end
-- @include ring
ring(bell)
return 1
