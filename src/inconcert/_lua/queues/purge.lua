-- queues/purge: drop unclaimed items, at most 500.
--
-- KEYS[1]  bodies    hash  id -> 'put_ms item'
-- KEYS[2]  queue     list  ids, the next one first
-- KEYS[3]  delayed   zset  id -> due time, server ms
-- KEYS[4]  states    hash  id -> where it is, unless in its queue
-- KEYS[5]  failures  hash  id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[6]  crashes   hash  id -> workers that died with it
-- KEYS[7]  line      zset  address -> ticket: puts that wait for room
-- KEYS[8]  recent    hash  request -> its answer, 120 s
-- KEYS[9]  older     hash  earlier entries of the same; at most 120 s
-- KEYS[10] dead      zset  id -> when it was dead-lettered, server ms
-- KEYS[11] joiners   zset  address -> when it asked, server ms: those that wait until no item is left; 60 s
-- ARGV[1]  inboxes   prefix of each session's inbox channel
-- ARGV[2]  request   string, unique to this call
-- RETURNS  how many were dropped; 500 if there may be more
-- TWICE    the same, and nothing is dropped, even if items were put in between
-- COST     O(M log D), M dropped, D delayed items
-- @include recall
-- @include remember
-- @include wake_first_putter
-- @include tell_joiners
local bodies, queue, delayed, states, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local line, recent, older, dead, joiners = KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local inboxes, request = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
redis.call('ZCARD', delayed)  -- a foreign key stops the script before it changes anything
redis.call('ZCARD', line)
local ids = redis.call('LRANGE', queue, 0, 499)
redis.call('LTRIM', queue, 500, -1)
if #ids < 500 then
  local later = redis.call('ZRANGE', delayed, 0, 499 - #ids)
  for _, id in ipairs(later) do
    ids[#ids + 1] = id
  end
  if #later > 0 then
    redis.call('ZREM', delayed, unpack(later))
  end
end
if #ids > 0 then
  for _, key in ipairs({bodies, states, failures, crashes}) do
    redis.call('HDEL', key, unpack(ids))
  end
  wake_first_putter(line, inboxes)
  tell_joiners(joiners, bodies, dead, inboxes)
end
remember(recent, older, request, #ids)
return #ids
