-- tasks/tell: tell jobs what became of parents in other partitions.
--
-- KEYS  bodies states dead reasons facts watchers waiting pending unfollowed
-- PLUGS on_end on_dead
-- ARGV  inboxes      prefix of each session's inbox channel
-- ARGV  relations..  parent, child, 'succeeded ', 'failed ' and why if that is a parent's end, 'cancelled ' or '' if it is not known: for each, at most 500
-- MOVES    waiting: orphaned; new: put_after
-- RETURNS  {news, there, ...}: 1 if there are news; then 1 for each child that is there, 0 for one that has ended
-- TWICE    the same: a child is told of each parent once
-- COST     O(N P), N relations given, P parents of each child
-- @include server_time
-- @include tell_child
local FIELDS = 3  -- arguments of each relation

local now_ms = math.floor(server_time() / 1000)
local answer = {0}
-- @guard keys.dead:zset on_end
for i = RELATIONS, #ARGV, FIELDS do
  local parent, child, outcome = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if tell_child(keys, inboxes, now_ms, child, parent, outcome) then
    redis.call('RPUSH', keys.news, child)  -- its queue may be any: it is made ready by `resolve_dependents`
  end
  answer[#answer + 1] = redis.call('HEXISTS', bodies, child)
end
answer[1] = redis.call('EXISTS', keys.news)
return answer
