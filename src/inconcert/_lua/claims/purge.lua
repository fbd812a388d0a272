-- claims/purge: drop what was dead-lettered, the oldest first, at most 500, and fewer if they have many steps.
--
-- KEYS[1]  dead      zset  id -> when it was dead-lettered, server ms
-- KEYS[2]  reasons   hash  id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[3]  bodies    hash  id -> 'enqueued_ms envelope'
-- KEYS[4]  failures  hash  id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[5]  crashes   hash  id -> workers that died with it
-- KEYS[6]  parents   hash  id -> ids of the jobs that it runs after
-- KEYS[7]  news      list  ids of jobs that have ended, or may run now, which nobody has seen to yet
-- KEYS[8]  recent    hash  request -> its answer, 120 s
-- KEYS[9]  older     hash  the same, from before; at most 120 s
-- KEYS[10] steps     hash  'NUMBER ID' -> a step of that job
-- KEYS[11] stepped   hash  id -> the number of its latest step
-- KEYS[12] groups    hash  group -> what has become of it; see read_group.lua
-- KEYS[13] settled   zset  group -> when to forget it, server ms; of those that have ended
-- KEYS[14] messages  hash  'LENGTH NAME ID' -> a message to that job
-- KEYS[15] received  hash  id -> 'COUNT BYTES NAMES': of the messages to it
-- KEYS[16] awaited   hash  id -> 'LENGTH NAME' of each message for which it has left its worker
-- KEYS[17] undo      hash  id -> what is noted of undoing it
-- ARGV[1]  age_ms    integer >= 0: only those that were dead-lettered longer ago
-- ARGV[2]  keep      integer >= 0: of all dead jobs the latest so many stay
-- ARGV[3]  request   string, unique to this call
-- ARGV[4..] ids      of those to drop, at most 250; without any, all that are old enough
-- RETURNS  {dropped, more}: how many were dropped; 1 if others of these may be left
-- TWICE    the same, and nothing is dropped, even if others, or the same again, were dead-lettered in between
-- COST     O(M log N + S), N dead jobs, M dropped, S of their steps and messages: at most 2,000, or those of one job
-- @include server_time
-- @include drop_steps
-- @include within_volume
-- @include recall
-- @include remember
-- @include group_of
-- @include count_member
local FIRST_ID = 4  -- ARGV of the ids

local dead, reasons, bodies, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local parents, recent, older = KEYS[6], KEYS[8], KEYS[9]
local keys = {
  news = KEYS[7], steps = KEYS[10], stepped = KEYS[11], groups = KEYS[12], settled = KEYS[13],
  messages = KEYS[14], received = KEYS[15], awaited = KEYS[16], undo = KEYS[17],
}
local request = ARGV[3]
local answer = recall(recent, older, request)
if answer then
  local dropped, more = string.match(answer, '^(%d+) (%d)$')
  return {tonumber(dropped), tonumber(more)}
end
redis.call('HLEN', keys.groups)  -- a foreign key stops the script here
redis.call('ZCARD', keys.settled)
redis.call('HDEL', recent, request)  -- first: it needs no memory, so a full server lets the rest pass
local until_ms, keep = math.floor(server_time() / 1000) - ARGV[1], tonumber(ARGV[2])
local MOST = 500
local ids, more = {}, 0
if #ARGV < FIRST_ID then
  local most = math.max(0, math.min(MOST, redis.call('ZCARD', dead) - keep))
  ids = redis.call('ZRANGEBYSCORE', dead, '-inf', until_ms, 'LIMIT', 0, most)
  more = #ids == MOST and 1 or 0
end
for i = FIRST_ID, #ARGV do
  local place = redis.call('ZREVRANK', dead, ARGV[i])
  local is_old_enough = ARGV[1] == '0' or (place and tonumber(redis.call('ZSCORE', dead, ARGV[i])) <= until_ms)
  if place and place >= keep and is_old_enough then
    ids[#ids + 1] = ARGV[i]
  end
end
local few = within_volume(keys, ids)
if few < #ids then
  ids, more = {unpack(ids, 1, few)}, 1
end
local dropped = #ids > 0 and redis.call('ZREM', dead, unpack(ids)) or 0
remember(recent, older, request, dropped .. ' ' .. more)
if dropped > 0 then
  for _, key in ipairs({reasons, bodies, failures, crashes}) do
    redis.call('HDEL', key, unpack(ids))
  end
  drop_steps(keys, ids)
  for i, list in ipairs(redis.call('HMGET', parents, unpack(ids))) do
    local group = group_of(ids[i])
    if group then
      count_member(keys, group, 'purged')
    end
    if list then
      redis.call('RPUSH', keys.news, ids[i])
    end
  end
end
return {dropped, more}
