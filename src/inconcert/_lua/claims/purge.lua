-- claims/purge: drop what was dead-lettered, the oldest first, at most 500.
--
-- KEYS[1]  dead      zset  id -> when it was dead-lettered, server ms
-- KEYS[2]  reasons   hash  id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[3]  bodies    hash  id -> 'enqueued_ms envelope'
-- KEYS[4]  failures  hash  id -> attempts that failed
-- KEYS[5]  crashes   hash  id -> workers that died with it
-- KEYS[6]  parents   hash  id -> ids of the jobs that it runs after
-- KEYS[7]  news      list  ids of jobs that have ended, or may run now, which nobody has seen to yet
-- KEYS[8]  recent    hash  request -> its answer, 120 s
-- KEYS[9]  older     hash  the same, from before; at most 120 s
-- ARGV[1]  id        string, of the one to drop; '' for all that are old enough
-- ARGV[2]  age_ms    integer >= 0: those that were dead-lettered longer ago
-- ARGV[3]  keep      integer >= 0: of all dead jobs the latest so many stay
-- ARGV[4]  request   string, unique to this call
-- RETURNS  how many were dropped; 500 if there may be more
-- TWICE    the same, and nothing is dropped, even if others, or the same again, were dead-lettered in between
-- COST     O(M log N), N dead jobs, M dropped
-- @include server_time
-- @include recall
-- @include remember
local dead, reasons, bodies, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local parents, news, recent, older, request = KEYS[6], KEYS[7], KEYS[8], KEYS[9], ARGV[4]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
redis.call('HDEL', recent, request)  -- first: it needs no memory, so a full server lets the rest pass
local ids = {ARGV[1]}
if ARGV[1] == '' then
  local until_ms = math.floor(server_time() / 1000) - ARGV[2]
  local most = math.max(0, math.min(500, redis.call('ZCARD', dead) - ARGV[3]))
  ids = redis.call('ZRANGEBYSCORE', dead, '-inf', until_ms, 'LIMIT', 0, most)
end
local dropped = #ids > 0 and redis.call('ZREM', dead, unpack(ids)) or 0
remember(recent, older, request, dropped)
if dropped > 0 then
  for _, key in ipairs({reasons, bodies, failures, crashes}) do
    redis.call('HDEL', key, unpack(ids))
  end
  for i, list in ipairs(redis.call('HMGET', parents, unpack(ids))) do
    if list then
      redis.call('RPUSH', news, ids[i])
    end
  end
end
return dropped
