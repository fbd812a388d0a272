-- claims/ack: jobs, or items, are done, or were cancelled while they ran.
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
-- KEYS[25]   dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[26]   joiners   zset    address -> when it asked, server ms: those that wait until no item is left; 60 s
-- KEYS[27]   undo      hash    id -> what is noted of undoing it
-- KEYS[28]   places    hash    limit -> 'COUNT MOST AT_MS', see read_limit.lua; rate -> see read_rate.lua; id -> their limits; '@KEY' -> id whose turn it is
-- KEYS[29]   held_back  zset    'LIMIT ORDER ID', all of score 0: a delayed job in the line of this limit or key
-- KEYS[30]   history   zset    how the last jobs of a task ended; see tasks/history.lua
-- KEYS[31..] results   string  of each job, in the same order: 'succeeded JSON' | 'cancelled '; then the list, bell and delayed
--            of each queue from which those come that have limits
-- ARGV[1]    inboxes   what the channel of each session's inbox begins with
-- ARGV[2]    worker    string
-- ARGV[3]    histories 'NUMBER ENQUEUED_MS MOST:TASK,' of each of the jobs that is to be in the history of its task, by its place
--            among them, from 1
-- ARGV[4..]  jobs      id, place, result or '', ttl_ms, unique name or '': for each job, at most 500 of them; a result is
--            kept for ttl_ms; for 60 s if that is less than 1 s and somebody waits for it
-- RETURNS    {1 or 0, ...}: for each job whether the worker held it at this place; 2 if others are to be told
-- TWICE      0 for each: it is done already
-- COST       O(N), N jobs given, their steps and messages
-- @include end_done
local FIRST_RESULT, FIRST_JOB, FIELDS = 31, 4, 5  -- KEYS of the results; ARGV of the jobs, and how many each has

local keys = {
  bodies = KEYS[1], claimed = KEYS[2], failures = KEYS[3], crashes = KEYS[4], states = KEYS[5], progress = KEYS[6],
  watchers = KEYS[7], unique = KEYS[8], checks = KEYS[9], finished = KEYS[10], parents = KEYS[11], children = KEYS[12],
  outcomes = KEYS[13], news = KEYS[14], line = KEYS[15], workers = KEYS[16], idle = KEYS[17], steps = KEYS[18],
  stepped = KEYS[19], groups = KEYS[20], settled = KEYS[21],
  messages = KEYS[22], received = KEYS[23], awaited = KEYS[24], dead = KEYS[25], joiners = KEYS[26],
  undo = KEYS[27], places = KEYS[28], held_back = KEYS[29], history = KEYS[30],
}
local inboxes, worker, histories = ARGV[1], ARGV[2], ARGV[3]
local first_queue = FIRST_RESULT + (#ARGV - FIRST_JOB + 1) / FIELDS
return end_done(keys, inboxes, worker, ARGV, FIRST_JOB, {unpack(KEYS, FIRST_RESULT, first_queue - 1)},
  {unpack(KEYS, first_queue)}, histories)
