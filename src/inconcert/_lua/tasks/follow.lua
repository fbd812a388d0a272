-- tasks/follow: note jobs of other partitions that run after jobs of this one.
--
-- KEYS[1]    bodies     hash    id -> 'enqueued_ms envelope'
-- KEYS[2]    dead       zset    id -> when it was dead-lettered, server ms
-- KEYS[3]    reasons    hash    id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[4]    children   zset    'id child', all of score 0: a job that runs after this one and has not ended
-- KEYS[5]    followers  zset    'id child', all of score 0: a child to resolve when the job of this id has ended
-- KEYS[6]    outcomes   hash    id -> outcome of a job that has children: 'succeeded JSON' | 'failed REASON' | 'cancelled '
-- KEYS[7]    news       list    ids of jobs that have ended or may run now, not processed yet
-- KEYS[8..]  results    string  of each parent, in the same order
-- ARGV[1..]  relations  parent, child: for each, at most 500
-- RETURNS    how many parents have ended, or are not known: their children are to be told
-- TWICE      the same; a child is told of each parent once
-- COST       O(N log C), N relations given, C pairs of children
local FIRST_RESULT, FIELDS = 8, 2  -- KEYS of the results; ARGV of each relation

local bodies, dead, reasons, children, followers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local outcomes, news = KEYS[6], KEYS[7]
local ended = 0
for i = 1, #ARGV, FIELDS do
  local id, child = ARGV[i], ARGV[i + 1]
  redis.call('ZADD', children, 0, id .. ' ' .. child)
  redis.call('ZADD', followers, 0, id .. ' ' .. child)
  local is_dead = redis.call('ZSCORE', dead, id)
  if is_dead or redis.call('HEXISTS', bodies, id) == 0 then
    local outcome = redis.call('HGET', outcomes, id) or redis.call('GET', KEYS[FIRST_RESULT + (i - 1) / FIELDS])
    if is_dead then
      outcome = 'failed ' .. (redis.call('HGET', reasons, id) or '')
    end
    if outcome then
      redis.call('HSET', outcomes, id, outcome)
    end
    redis.call('RPUSH', news, id)
    ended = ended + 1
  end
end
return ended
