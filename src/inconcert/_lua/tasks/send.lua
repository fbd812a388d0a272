-- tasks/send: send a message to a job: the first of its name is kept until the job ends.
--
-- KEYS[1]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]  states    hash    id -> where it is, unless in its queue
-- KEYS[3]  dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[4]  queue     list    ids, the next one first
-- KEYS[5]  bell      list    at most one token
-- KEYS[6]  delayed   zset    id -> due time, server ms
-- KEYS[7]  messages  hash    'LENGTH NAME ID' -> a message to that job: signed JSON, or '' once it was waited for too long
-- KEYS[8]  received  hash    id -> 'COUNT BYTES NAMES': how much was sent to it, and 'LENGTH NAME' of each
-- KEYS[9]  awaited   hash    id -> 'LENGTH NAME' of each message for which it has left its worker
-- KEYS[10] recent    hash    request -> its answer, 120 s
-- KEYS[11] older     hash    earlier entries of the same; at most 120 s
-- ARGV[1]  id        string
-- ARGV[2]  name      'LENGTH NAME', of the message
-- ARGV[3]  message   signed JSON
-- ARGV[4]  queue_name  of the queue, if the job is delayed
-- ARGV[5]  request   string, unique to this call
-- RETURNS  {1, ''} kept, and if the job waits for it, it is the next in its queue, or stays in the
--          line of a limit | {0, ''} there was one of this name, it
--          was waited for too long, or the job has ended | {2, queue-name} nothing was done: it waits in this queue
--          | {3, ''} there are 1,000 messages, or they would exceed 16 MiB
-- TWICE    the same, and nothing is changed, even if the job has ended in between
-- COST     O(log D + N), D delayed jobs of the queue, N messages to the job
-- @include recall
-- @include remember
-- @include ring
-- @include packed_names
-- @include keep_message
local MOST, MOST_BYTES = 1000, 16777216  -- messages of a job, as many as steps
local HELD_BACK_MS = 4e15  -- as in hold_back.lua

local bodies, states, dead, queue, bell, delayed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local messages, received, awaited, recent, older = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local id, name, message, queue_name, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local answer = recall(recent, older, request)
if answer then
  return {tonumber(answer), ''}
end

local function is_awaited()
  for _, other in ipairs(packed_names(redis.call('HGET', awaited, id) or '')) do
    if other == name then
      return true
    end
  end
  return false
end

local function send()
  if redis.call('HEXISTS', bodies, id) == 0 or redis.call('ZSCORE', dead, id) then
    return 0
  elseif redis.call('HEXISTS', messages, name .. ' ' .. id) == 1 then
    return 0
  end
  local count, bytes = string.match(redis.call('HGET', received, id) or '0 0 ', '^(%d+) (%d+) ')
  if tonumber(count) >= MOST or bytes + #message > MOST_BYTES then
    return 3
  end
  local place = string.match(redis.call('HGET', states, id) or '', '^delayed (.*)$')
  local wakes = place and is_awaited()
  if wakes and place ~= queue_name then
    return 2, place
  elseif wakes then
    -- Where it may go is read before anything is changed: a foreign key stops the script here.
    redis.call('LLEN', queue)
    redis.call('LLEN', bell)
    wakes = tonumber(redis.call('ZSCORE', delayed, id) or HELD_BACK_MS) < HELD_BACK_MS  -- otherwise it waits for a limit
  end
  keep_message(messages, received, id, name, message)
  if wakes then
    redis.call('ZREM', delayed, id)
    redis.call('HDEL', awaited, id)
    redis.call('HDEL', states, id)
    redis.call('LPUSH', queue, id)
    ring(bell)
  end
  return 1
end

local done, place = send()
if done == 2 then
  return {2, place}
end
remember(recent, older, request, done)
return {done, ''}
