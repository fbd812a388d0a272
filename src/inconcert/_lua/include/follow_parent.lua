-- Lets a job run after another one of this partition, which has not ended.
-- @include flag
local function follow_parent(keys, parent, id)
  redis.call('ZADD', keys.children, 0, parent .. ' ' .. id)
  redis.call('ZADD', keys.followers, 0, parent .. ' ' .. id)
  flag(keys.facts, parent, 'c')
end
