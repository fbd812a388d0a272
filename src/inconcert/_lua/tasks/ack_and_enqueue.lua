-- tasks/ack_and_enqueue: a job is done: end it, and add the jobs that follow it.
--
-- KEYS[1]    bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]    claimed   hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[3]    failures  hash    id -> 'COUNT REASON': attempts that failed, and why the latest did
-- KEYS[4]    crashes   hash    id -> workers that died with it
-- KEYS[5]    states    hash    id -> where it is, if not in its queue
-- KEYS[6]    progress  hash    id -> 'NUMBER JSON': its progress
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
-- KEYS[20]   groups    hash    group -> what has become of it; see read_group.lua
-- KEYS[21]   settled   zset    group -> when to forget it, server ms; of those that have ended
-- KEYS[22]   messages  hash    'LENGTH NAME ID' -> a message to that job
-- KEYS[23]   received  hash    id -> 'COUNT BYTES NAMES': of the messages to it
-- KEYS[24]   awaited   hash    id -> 'LENGTH NAME' of each message for which it has left its worker
-- KEYS[25]   undo      hash    id -> what is noted of undoing it
-- KEYS[26]   result    string  of the job: 'succeeded JSON'
-- KEYS[27]   places    hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[28]   held_back  zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[29]   queue     list    ids, the next one first; of the queue of the job that is done
-- KEYS[30]   bell      list    at most one token; likewise
-- KEYS[31]   delayed   zset    id -> due time, server ms; likewise
-- KEYS[32]   history   zset    how the last jobs of a task ended; see tasks/history.lua
-- KEYS[33..] queues    list, then its bell (list) and delayed (zset), for each job that follows
-- ARGV[1]    inboxes   what the channel of each session's inbox begins with
-- ARGV[2]    worker    string
-- ARGV[3]    id        string
-- ARGV[4]    place     integer, as it was claimed
-- ARGV[5]    outcome   'succeeded JSON', or '' to keep none
-- ARGV[6]    ttl_ms    integer >= 0, for which its result is kept
-- ARGV[7]    name      unique name, or ''
-- ARGV[8]    histories '1 ENQUEUED_MS MOST:TASK,' if it is to be in the history of its task, or ''
-- ARGV[9..]  jobs      id, envelope, delay_ms, queue name: for each that follows, 1 to 100
-- RETURNS    {1 or 0}: whether the worker held it at this place; 2 if others are to be told
-- TWICE      {0}: it is done already, and nothing is added
-- COST       O(N log D), N jobs that follow, D delayed jobs of their queues
-- @include server_time
-- @include end_done
-- @include make_ready
local FIRST_QUEUE, PARTS, FIRST_JOB, FIELDS = 33, 3, 9, 4  -- KEYS of the queues, ARGV of the jobs; how many each has

local keys = {
  bodies = KEYS[1], claimed = KEYS[2], failures = KEYS[3], crashes = KEYS[4], states = KEYS[5], progress = KEYS[6],
  watchers = KEYS[7], unique = KEYS[8], checks = KEYS[9], finished = KEYS[10], parents = KEYS[11], children = KEYS[12],
  outcomes = KEYS[13], news = KEYS[14], line = KEYS[15], workers = KEYS[16], idle = KEYS[17], steps = KEYS[18],
  stepped = KEYS[19], groups = KEYS[20], settled = KEYS[21],
  messages = KEYS[22], received = KEYS[23], awaited = KEYS[24], undo = KEYS[25],
  places = KEYS[27], held_back = KEYS[28], history = KEYS[32],
}
local result, inboxes, worker = KEYS[26], ARGV[1], ARGV[2]
local id, place, outcome, ttl_ms, name, histories = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local now_ms = math.floor(server_time() / 1000)
-- All destination keys are read before anything is changed: a foreign key stops the script here.
for i = FIRST_QUEUE, #KEYS, PARTS do
  redis.call('LLEN', KEYS[i])
  redis.call('LLEN', KEYS[i + 1])
  redis.call('ZCARD', KEYS[i + 2])
end
local answer = end_done(keys, inboxes, worker, {id, place, outcome, ttl_ms, name}, 1, {result},
  {KEYS[29], KEYS[30], KEYS[31]}, histories)
if answer[1] == 0 then
  return answer
end
local enqueued, queue = string.format('%.0f ', now_ms), FIRST_QUEUE
for i = FIRST_JOB, #ARGV, FIELDS do
  local job, envelope, delay_ms, queue_name = unpack(ARGV, i, i + FIELDS - 1)
  redis.call('HSETNX', keys.finished, queue_name, 0)  -- the names of all queues are there
  redis.call('HSET', keys.bodies, job, enqueued .. envelope)
  make_ready(KEYS[queue], KEYS[queue + 1], KEYS[queue + 2], keys.states, job, delay_ms, now_ms, queue_name)
  queue = queue + PARTS
end
return answer
