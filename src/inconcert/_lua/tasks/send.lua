-- tasks/send: send a message to a job: the first of its name is kept until the job ends.
--
-- KEYS  bodies states facts dead queue bell delayed messages received awaited recent older
-- ARGV  id          string
-- ARGV  name        'LENGTH NAME', of the message
-- ARGV  message     signed JSON
-- ARGV  queue_name  of the queue, if the job is delayed
-- ARGV  request     string, unique to this call
-- MOVES    delayed: woken
-- RETURNS  {1, ''} kept, and if the job waits for it, it is the next in its queue, or stays in the
--          line of a limit | {0, ''} there was one of this name, it
--          was waited for too long, or the job has ended | {2, queue-name} nothing was done: it waits in this queue
--          | {3, ''} there are 1,000 messages, or they would exceed 16 MiB
-- TWICE    the same, and nothing is changed, even if the job has ended in between
-- COST     O(log D + N), D delayed jobs of the queue, N messages to the job
-- @include recall
-- @include remember
-- @include put_ready
-- @include ring
-- @include packed_names
-- @include keep_message
local MOST, MOST_BYTES = 1000, 16777216  -- messages of a job, as many as steps
local HELD_BACK_MS = 4e15  -- as in hold_back.lua

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
  local delayed_in = string.match(redis.call('HGET', states, id) or '', '^delayed (.*)$')
  local wakes = delayed_in and is_awaited()
  if wakes and delayed_in ~= queue_name then
    return 2, delayed_in
  elseif wakes then
    -- Where it may go is read before anything is changed: a foreign key stops the script here.
    -- @guard queue:list bell:list
    wakes = tonumber(redis.call('ZSCORE', delayed, id) or HELD_BACK_MS) < HELD_BACK_MS  -- otherwise it waits for a limit
  end
  keep_message(facts, messages, received, id, name, message)
  if wakes then
    redis.call('ZREM', delayed, id)
    redis.call('HDEL', awaited, id)
    redis.call('HDEL', states, id)
    put_ready(facts, queue, delayed, {id}, 'LPUSH')
    ring(bell)
  end
  return 1
end

local done, other_queue = send()
if done == 2 then
  return {2, other_queue}
end
remember(recent, older, request, done)
return {done, ''}
