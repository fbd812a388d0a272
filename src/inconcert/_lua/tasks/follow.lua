-- tasks/follow: note jobs of other partitions that run after jobs of this one.
--
-- KEYS  bodies dead reasons children followers outcomes news facts results..
--       results: string  of each parent, in the same order
-- ARGV  relations..  parent, child: for each, at most 500
-- RETURNS  how many parents have ended, or are not known: their children are to be told
-- TWICE    the same; a child is told of each parent once
-- COST     O(N log C), N relations given, C pairs of children
-- @include flag
local FIELDS = 2  -- arguments of each relation

local ended = 0
for i = RELATIONS, #ARGV, FIELDS do
  local id, child = ARGV[i], ARGV[i + 1]
  redis.call('ZADD', children, 0, id .. ' ' .. child)
  redis.call('ZADD', followers, 0, id .. ' ' .. child)
  local is_dead = redis.call('ZSCORE', dead, id)
  if is_dead or redis.call('HEXISTS', bodies, id) == 0 then
    local outcome = redis.call('HGET', outcomes, id) or redis.call('GET', KEYS[RESULTS + (i - 1) / FIELDS])
    if is_dead then
      outcome = 'failed ' .. (redis.call('HGET', reasons, id) or '')
    end
    if outcome then
      redis.call('HSET', outcomes, id, outcome)
    end
    redis.call('RPUSH', news, id)
    ended = ended + 1
  else
    flag(facts, id, 'c')
  end
end
return ended
