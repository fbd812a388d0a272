-- tasks/claim: take jobs from the queues, in their order, for a worker to run.
--
-- KEYS[1]    bodies    hash    id -> envelope
-- KEYS[2]    workers   zset    worker -> when it is taken for dead, server ms
-- KEYS[3]    claimed   hash    id -> 'attempt place queue-name', and '#' -> 'number id ...' of the last claim; of this
--            worker; the places rise from job to job
-- KEYS[4]    failures  hash    id -> attempts that failed
-- KEYS[5]    crashes   hash    id -> workers that died with it
-- KEYS[6..]  queue     list, then its bell (list) and delayed (zset), for each queue, the most urgent first
-- ARGV[1]    worker    string
-- ARGV[2]    number    integer, one more with each claim of this worker
-- ARGV[3]    count     integer from 1 to 500
-- ARGV[4..]  name      of each queue, in the same order
-- RETURNS    {1, next_ms, id, envelope, attempt, failed, queue-name, ...}: milliseconds until a delayed job is due, -1 if
--            there is none; then each job, which attempt this is, how many attempts failed, and where it comes from
--            | {0}: this worker has been taken for dead
-- TWICE      the jobs of the first run again, as far as they are not done, and no others; none after a later claim
-- COST       O(Q log D + count), Q queues with D delayed jobs
-- @include server_time
-- @include ring
local bodies, workers, claimed, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local worker, number, count = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local now_ms = math.floor(server_time() / 1000)
local ends = redis.call('ZSCORE', workers, worker)
if not ends or tonumber(ends) <= now_ms then
  return {0}
end
local last = redis.call('HGET', claimed, '#')
local last_number = last and tonumber(string.match(last, '^%d+')) or 0
if last_number > number then
  return {1, -1}  -- it was sent again long ago; this is the first sending, come late, and nobody listens
end

-- All queues are read before one is changed: a key that is not ours stops the script here.
local ready, next_ms = {}, -1
for i = 6, #KEYS, 3 do
  ready[i] = redis.call('LLEN', KEYS[i])
  local due = redis.call('ZRANGE', KEYS[i + 2], 0, 0, 'WITHSCORES')[2]
  if due and (next_ms < 0 or due - now_ms < next_ms) then
    next_ms = math.max(0, due - now_ms)
  end
end

local ids, names = {}, {}
if last_number == number then
  for id in string.gmatch(last, ' (%S+)') do
    local claim = redis.call('HGET', claimed, id)
    if claim then
      ids[#ids + 1], names[#names + 1] = id, string.match(claim, '^%d+ %d+ (.*)$')
    end
  end
else
  for i = 6, #KEYS, 3 do
    if #ids < count then
      for _, id in ipairs(redis.call('LPOP', KEYS[i], count - #ids) or {}) do
        ids[#ids + 1], names[#names + 1] = id, ARGV[4 + (i - 6) / 3]
        ready[i] = ready[i] - 1
      end
    end
  end
end

local answer = {1, next_ms}
local claims = {'#', ARGV[2] .. ' ' .. table.concat(ids, ' ')}
if #ids > 0 then
  local envelopes = redis.call('HMGET', bodies, unpack(ids))
  local failed = redis.call('HMGET', failures, unpack(ids))
  local crashed = redis.call('HMGET', crashes, unpack(ids))
  for i, id in ipairs(ids) do
    if envelopes[i] then  -- else it was cancelled
      local errors = tonumber(failed[i]) or 0
      local attempt = errors + (tonumber(crashed[i]) or 0) + 1
      claims[#claims + 1] = id
      claims[#claims + 1] = attempt .. ' ' .. number * 1000 + i .. ' ' .. names[i]
      answer[#answer + 1] = id
      answer[#answer + 1] = envelopes[i]
      answer[#answer + 1] = attempt
      answer[#answer + 1] = errors
      answer[#answer + 1] = names[i]
    end
  end
end
if last_number < number then
  redis.call('HSET', claimed, unpack(claims))
  for i = 6, #KEYS, 3 do
    if ready[i] > 0 then
      ring(KEYS[i + 1])  -- work is left behind: the next idle consumer wakes, one after the other
    end
  end
end
return answer
