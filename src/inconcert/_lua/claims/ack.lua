-- claims/ack: jobs, or items, are done, or were cancelled while they ran.
--
-- KEYS[1]    bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]    claimed   hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[3]    failures  hash    id -> attempts that failed
-- KEYS[4]    crashes   hash    id -> workers that died with it
-- KEYS[5]    states    hash    id -> where it is, if not in its queue
-- KEYS[6]    progress  hash    id -> how far it is, JSON
-- KEYS[7]    watchers  zset    'id address': which processes wait for its end
-- KEYS[8]    unique    hash    unique name -> id of the job that has it, and when its window ends, or 0
-- KEYS[9]    checks    zset    unique name -> when to look whether it is still taken, server ms
-- KEYS[10]   finished  hash    queue name -> how many have succeeded or were cancelled; one entry for each queue, permanent
-- KEYS[11]   parents   hash    id -> ids of the jobs that it runs after
-- KEYS[12]   children  zset    'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[13]   outcomes  hash    id -> what became of a job that has children
-- KEYS[14]   news      list    ids of jobs that have ended, or may run now, which nobody has seen to yet
-- KEYS[15]   line      zset    address -> ticket: those who wait for room to put something in
-- KEYS[16]   workers   zset    worker -> when it is presumed dead, ms by the lease clock; of those that hold something
-- KEYS[17]   idle      zset    worker -> when it is presumed dead, ms by the lease clock; of those that hold nothing; 1 h
-- KEYS[18]   steps     hash    'NUMBER ID' -> a step of that job
-- KEYS[19]   stepped   hash    id -> the number of its latest step
-- KEYS[20..] results   string  of each job, in the same order: 'succeeded JSON' | 'cancelled '
-- ARGV[1]    inboxes   what the channel of each session's inbox begins with
-- ARGV[2]    worker    string
-- ARGV[3..]  jobs      id, place, result or '', ttl_ms, unique name or '': for each job, at most 500 of them; a result is
--            kept for ttl_ms, and at least for 60 s if somebody waits for it
-- RETURNS    {1 or 0, ...}: for each job whether the worker held it at this place; 2 if others are to be told
-- TWICE      0 for each: it is done already
-- COST       O(N), N jobs given and their steps
-- @include drop_steps
-- @include fall_idle
-- @include notify_watchers
-- @include note_end
-- @include wake_first_putter
local FIRST_RESULT, FIRST_JOB, FIELDS = 20, 3, 5  -- KEYS of the results; ARGV of the jobs, and how many each has
local SHORTEST_TTL_MS = 60000  -- of a result for which somebody waits
local ENDED_WITH_DEPENDENTS = 2

local bodies, claimed, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local states, progress, watchers, unique, checks, finished = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local parents, children, outcomes, news, line = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local workers, idle, steps, stepped, inboxes, worker = KEYS[16], KEYS[17], KEYS[18], KEYS[19], ARGV[1], ARGV[2]
local given, done, ids, answer, counts = {}, {}, {}, {}, {}
for i = FIRST_JOB, #ARGV, FIELDS do
  given[#given + 1] = ARGV[i]
end
for n, claim in ipairs(redis.call('HMGET', claimed, unpack(given))) do
  local i = FIRST_JOB + FIELDS * (n - 1)
  local place, queue_name = string.match(claim or '', '^(%d+) %d+ %d+ (.*)$')
  local is_held = place == ARGV[i + 1]
  answer[n] = is_held and 1 or 0
  if is_held then
    counts[queue_name] = (counts[queue_name] or 0) + 1
    done[#done + 1], ids[#ids + 1] = i, given[n]
  end
end
if #done == 0 then
  return answer
end

for _, key in ipairs({claimed, bodies, states}) do  -- first: it frees memory
  redis.call('HDEL', key, unpack(ids))
end
for _, key in ipairs({failures, crashes, progress}) do
  if redis.call('EXISTS', key) == 1 then
    redis.call('HDEL', key, unpack(ids))
  end
end
drop_steps(steps, stepped, ids)
fall_idle(workers, idle, claimed, worker)
for queue_name, count in pairs(counts) do
  if queue_name ~= '' then
    redis.call('HINCRBY', finished, queue_name, count)
  end
end
wake_first_putter(line, inboxes)
local some_are_watched = redis.call('EXISTS', watchers) == 1
local some_are_related = redis.call('EXISTS', parents, children) > 0
for _, i in ipairs(done) do
  local id, result, ttl_ms, name = ARGV[i], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local is_watched = some_are_watched and notify_watchers(watchers, inboxes, id)
  if is_watched and ttl_ms < SHORTEST_TTL_MS then
    ttl_ms = SHORTEST_TTL_MS
  end
  if ttl_ms > 0 and result ~= '' then
    redis.call('SET', KEYS[FIRST_RESULT + (i - FIRST_JOB) / FIELDS], result, 'PX', ttl_ms)
  end
  if name ~= '' and redis.call('HGET', unique, name) == id .. ' 0' then
    redis.call('HDEL', unique, name)
    redis.call('ZREM', checks, name)
  end
  if some_are_related and note_end(parents, children, outcomes, news, id, result ~= '' and result or 'succeeded null') then
    answer[1 + (i - FIRST_JOB) / FIELDS] = ENDED_WITH_DEPENDENTS
  end
end
return answer
