-- tasks/cancel: cancel a job: it will not run, or is stopped.
--
-- KEYS[1]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]  states    hash    id -> where it is, unless in its queue
-- KEYS[3]  dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[4]  failures  hash    id -> attempts that failed
-- KEYS[5]  crashes   hash    id -> workers that died with it
-- KEYS[6]  watchers  zset    'id address': processes that wait for its end
-- KEYS[7]  delayed   zset    id -> due time, server ms; of its queue
-- KEYS[8]  result    string  'succeeded JSON' | 'cancelled '
-- KEYS[9]  parents   hash    id -> ids of the jobs it runs after
-- KEYS[10] children  zset    'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[11] outcomes  hash    id -> outcome of a job that has children
-- KEYS[12] news      list    ids of jobs that have ended or may run now, not processed yet
-- KEYS[13] waiting   hash    queue name -> its jobs that wait for others
-- KEYS[14] pending   hash    id -> ids of the parents that it still waits for
-- KEYS[15] unfollowed hash   id -> ids of its parents in other partitions that do not know of it yet
-- KEYS[16] recent    hash    request -> its answer, 120 s
-- KEYS[17] older     hash    earlier entries of the same; at most 120 s
-- ARGV[1]  id        string
-- ARGV[2]  ttl_ms    integer > 0, how long the fact that it was cancelled is kept
-- ARGV[3]  inboxes   prefix of each session's inbox channel
-- ARGV[4]  request   string, unique to this call
-- RETURNS  1 it can no longer run | 2 the same, and dependents must be notified | 0 it runs: its worker is to stop it
-- TWICE    the same, and nothing is changed, even if it was replayed in between
-- COST     O(log N), N delayed jobs of the queue
-- @include recall
-- @include remember
-- @include notify_watchers
-- @include note_end
-- @include count_waiting
-- @include publish
local bodies, states, dead, failures, crashes, watchers, delayed, result =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local parents, children, outcomes, news, waiting = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local pending, unfollowed, recent, older = KEYS[14], KEYS[15], KEYS[16], KEYS[17]
local id, ttl_ms, inboxes, request = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end

local function cancel()
  if redis.call('HEXISTS', bodies, id) == 0 or redis.call('ZSCORE', dead, id) then
    return 1
  end
  local state, about = string.match(redis.call('HGET', states, id) or '', '^(%S+) (.*)$')
  if (state == 'running' or state == 'cancelling') and about ~= '' then
    redis.call('HSET', states, id, 'cancelling ' .. about)
    publish(inboxes .. string.match(about, '^(.*)%.'), about .. ' cancelled ' .. id)
    return 0
  end
  if state == 'waiting' then
    count_waiting(waiting, string.match(about, '^%d+ (.*)$'), -1)
  end
  -- Its id stays in its queue: without a body, it is not run.
  for _, key in ipairs({bodies, states, failures, crashes, pending, unfollowed}) do
    redis.call('HDEL', key, id)
  end
  redis.call('SET', result, 'cancelled ', 'PX', ttl_ms)
  notify_watchers(watchers, inboxes, id)
  return note_end(parents, children, outcomes, news, id, 'cancelled ') and 2 or 1
end

redis.call('ZREM', delayed, id)  -- first: needs no memory, so a full server accepts the rest
answer = cancel()
remember(recent, older, request, answer)
return answer
