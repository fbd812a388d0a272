-- claims/replay: put what was dead-lettered into a queue, as if it were new.
--
-- KEYS[1]  bodies    hash  id -> 'enqueued_ms envelope'
-- KEYS[2]  dead      zset  id -> when it was dead-lettered, server ms
-- KEYS[3]  reasons   hash  id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[4]  failures  hash  id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[5]  crashes   hash  id -> workers that died with it
-- KEYS[6]  queue     list  ids, the next one first
-- KEYS[7]  bell      list  at most one token
-- KEYS[8]  unique    hash  unique name -> id of the job that has it, and when its window ends, or 0
-- KEYS[9]  checks    zset  unique name -> when to look whether it is still taken, server ms
-- KEYS[10] outcomes  hash  id -> what became of a job that has children
-- KEYS[11] recent    hash  request -> its answer, 120 s
-- KEYS[12] older     hash  the same, from before; at most 120 s
-- KEYS[13] finished  hash  queue name -> jobs that have succeeded or were cancelled; the names of all queues are there
-- KEYS[14] groups    hash  group -> what has become of it; see read_group.lua
-- ARGV[1]  queue_name  of the queue; '' if there is only one
-- ARGV[2]  request   string, unique to this call
-- ARGV[3..] jobs     id, envelope, unique name: for each, at most 250; '' for the envelope that it has, and for no name; it
--          has its name again unless another has it now
-- RETURNS  how many were among the dead, and are in the queue
-- TWICE    the same, and nothing is changed, even if they were dead-lettered again in between
-- COST     O(M log N), N dead jobs, M given
-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include revive
-- @include group_of
-- @include count_member
local keys = {
  bodies = KEYS[1], dead = KEYS[2], reasons = KEYS[3], failures = KEYS[4], crashes = KEYS[5], unique = KEYS[8],
  checks = KEYS[9], outcomes = KEYS[10],
}
local queue, bell, recent, older, finished, groups = KEYS[6], KEYS[7], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local FIRST_JOB, FIELDS = 3, 3  -- ARGV of the jobs, and how many each has

local queue_name, request = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- All are read before anything is changed: a key that is not ours stops the script here.
redis.call('LLEN', queue)
redis.call('LLEN', bell)
redis.call('HLEN', finished)
redis.call('HLEN', groups)
local now_ms = math.floor(server_time() / 1000)
local ids = {}
for i = FIRST_JOB, #ARGV, FIELDS do
  local id, envelope, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('ZREM', keys.dead, id) == 1 then
    revive(keys, id, envelope, name, now_ms)
    local group = group_of(id)
    if group then
      count_member({groups = groups}, group, 'replayed')
    end
    ids[#ids + 1] = id
  end
end
if #ids > 0 then
  redis.call('RPUSH', queue, unpack(ids))
  ring(bell)
  if queue_name ~= '' then
    redis.call('HSETNX', finished, queue_name, 0)
  end
end
remember(recent, older, request, #ids)
return #ids
