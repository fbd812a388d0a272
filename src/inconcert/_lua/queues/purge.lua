-- queues/purge: drop unclaimed items, at most 500.
--
-- KEYS  bodies queue delayed states facts line recent older dead joiners
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  request  string, unique to this call
-- MOVES    queue: purged; delayed: purged
-- RETURNS  how many were dropped; 500 if there may be more
-- TWICE    the same, and nothing is dropped, even if items were put in between
-- COST     O(M log D), M dropped, D delayed items
-- @include recall
-- @include remember
-- @include wake_first_putter
-- @include tell_joiners
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- @guard delayed:zset line:zset
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
  for _, key in ipairs({bodies, states, facts}) do
    redis.call('HDEL', key, unpack(ids))
  end
  wake_first_putter(line, inboxes)
  tell_joiners(joiners, bodies, dead, inboxes)
end
remember(recent, older, request, #ids)
return #ids
