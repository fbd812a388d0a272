-- tasks/wait_again: put a job that was dead-lettered because of a parent back, to wait for its parents as if it were new.
--
-- KEYS[1]   bodies      hash  id -> 'enqueued_ms envelope'
-- KEYS[2]   queue       list  ids, the next one first
-- KEYS[3]   bell        list  at most one token
-- KEYS[4]   delayed     zset  id -> due time, server ms
-- KEYS[5]   states      hash  id -> where it is, unless in its queue
-- KEYS[6]   unique      hash  unique name -> id of the job that has it, and end of its window, server ms, or 0
-- KEYS[7]   checks      zset  unique name -> when to check whether it is still taken, server ms
-- KEYS[8]   dead        zset  id -> when it was dead-lettered, server ms
-- KEYS[9]   reasons     hash  id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[10]  failures    hash  id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[11]  crashes     hash  id -> workers that died with it
-- KEYS[12]  children    zset  'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[13]  followers   zset  'id child', all of score 0: a child to resolve when the job of this id has ended
-- KEYS[14]  outcomes    hash  id -> outcome of a job that has children: 'succeeded JSON' | 'failed REASON' | 'cancelled '
-- KEYS[15]  waiting     hash  queue name -> its jobs that wait for others
-- KEYS[16]  pending     hash  id -> ids of the parents that it still waits for
-- KEYS[17]  unfollowed  hash  id -> ids of its parents in other partitions that do not know of it yet
-- KEYS[18]  news        list  ids of jobs that have ended or may run now, not processed yet
-- KEYS[19]  recent      hash  request -> its answer, 120 s
-- KEYS[20]  older       hash  the same, from before; at most 120 s
-- KEYS[21]  groups      hash  group -> what has become of it; see read_group.lua
-- KEYS[22]  history     zset  how the last jobs of a task ended; see tasks/history.lua
-- ARGV[1]   request     string, unique to this call
-- ARGV[2]   id          string
-- ARGV[3]   queue_name  string
-- ARGV[4]   delay_ms    integer >= 0, from when all parents have ended
-- ARGV[5]   name        unique name, or ''; it has it again unless another job has it now
-- ARGV[6]   suffix      of the ids of this partition; '' if there are no others
-- ARGV[7]   even_if     '' if all must have succeeded | 'failed' | 'ended'; see lets_run()
-- ARGV[8..] after       ids, each once, 1 to 100
-- RETURNS   1 it is not among the dead now | 0 it was not among them, or is again because of another parent
-- TWICE     the same, and nothing is changed, even if it was dead-lettered again in between
-- COST      O(P log F), P parents, F pairs of followers
-- @include server_time
-- @include recall
-- @include remember
-- @include revive
-- @include wait_for_parents
-- @include group_of
-- @include count_member
local FIRST_PARENT = 8

local keys = {
  bodies = KEYS[1], queue = KEYS[2], bell = KEYS[3], delayed = KEYS[4], states = KEYS[5], unique = KEYS[6],
  checks = KEYS[7], dead = KEYS[8], reasons = KEYS[9], failures = KEYS[10], crashes = KEYS[11], children = KEYS[12],
  followers = KEYS[13], outcomes = KEYS[14], waiting = KEYS[15], pending = KEYS[16], unfollowed = KEYS[17],
  news = KEYS[18], history = KEYS[22],
}
local recent, older, groups = KEYS[19], KEYS[20], KEYS[21]
local request, id, queue_name, delay_ms, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local suffix, even_if = ARGV[6], ARGV[7]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- All destination keys are read before anything is changed: a foreign key stops the script here.
redis.call('LLEN', keys.queue)
redis.call('LLEN', keys.bell)
redis.call('ZCARD', keys.delayed)
redis.call('HLEN', groups)
redis.call('ZCARD', keys.history)
if redis.call('ZREM', keys.dead, id) == 0 then
  remember(recent, older, request, 0)
  return 0
end
local now_ms = math.floor(server_time() / 1000)
revive(keys, id, '', name, now_ms)
wait_for_parents(keys, id, {unpack(ARGV, FIRST_PARENT)}, {}, suffix, even_if, delay_ms, queue_name, now_ms)
answer = redis.call('ZSCORE', keys.dead, id) and 0 or 1
local group = group_of(id)
if group and answer == 1 then
  count_member({groups = groups}, group, 'replayed')
end
remember(recent, older, request, answer)
return answer
