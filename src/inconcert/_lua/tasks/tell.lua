-- tasks/tell: tell jobs what became of parents in other partitions.
--
-- KEYS[1]   bodies      hash  id -> 'enqueued_ms envelope'
-- KEYS[2]   states      hash  id -> where it is, unless in its queue
-- KEYS[3]   dead        zset  id -> when it was dead-lettered, server ms
-- KEYS[4]   reasons     hash  id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[5]   watchers    zset  'id address': processes that wait for its end
-- KEYS[6]   parents     hash  id -> ids of the jobs it runs after
-- KEYS[7]   children    zset  'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[8]   outcomes    hash  id -> outcome of a job that has children
-- KEYS[9]   news        list  ids of jobs that have ended or may run now, not processed yet
-- KEYS[10]  waiting     hash  queue name -> its jobs that wait for others
-- KEYS[11]  pending     hash  id -> ids of the parents that it still waits for
-- KEYS[12]  unfollowed  hash  id -> ids of its parents in other partitions that do not know of it yet
-- KEYS[13]  groups      hash  group -> what has become of it; see read_group.lua
-- KEYS[14]  settled     zset  group -> when to forget it, server ms; of those that have ended
-- KEYS[15]  history     zset  how the last jobs of a task ended; see tasks/history.lua
-- ARGV[1]   inboxes     prefix of each session's inbox channel
-- ARGV[2..] relations   parent, child, 'succeeded ', 'failed ' and why if that is a parent's end, 'cancelled ' or '' if it is not known: for each, at most 500
-- RETURNS   {news, there, ...}: 1 if there are news; then 1 for each child that is there, 0 for one that has ended
-- TWICE     the same: a child is told of each parent once
-- COST      O(N P), N relations given, P parents of each child
-- @include server_time
-- @include tell_child
local FIRST, FIELDS = 2, 3  -- ARGV of the relations, and of each

local bodies, news, inboxes = KEYS[1], KEYS[9], ARGV[1]
local keys = {
  states = KEYS[2], dead = KEYS[3], reasons = KEYS[4], watchers = KEYS[5], parents = KEYS[6], children = KEYS[7],
  outcomes = KEYS[8], news = KEYS[9], waiting = KEYS[10], pending = KEYS[11], unfollowed = KEYS[12],
  groups = KEYS[13], settled = KEYS[14], bodies = bodies, history = KEYS[15],
}
local now_ms = math.floor(server_time() / 1000)
local answer = {0}
redis.call('ZCARD', keys.history)  -- a foreign key stops the script here
for i = FIRST, #ARGV, FIELDS do
  local parent, child, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if tell_child(keys, inboxes, now_ms, child, parent, outcome) then
    redis.call('RPUSH', news, child)  -- its queue may be any: it is made ready by `resolve_dependents`
  end
  answer[#answer + 1] = redis.call('HEXISTS', bodies, child)
end
answer[1] = redis.call('EXISTS', news)
return answer
