-- Lets a job that has something to undo end once that is undone: `outcome` is 'failed JSON' or 'cancelled '.
-- @include forget_attempts
-- @include flag
local function begin_undo(keys, id, outcome)
  redis.call('HSET', keys.undo, id, outcome)
  redis.call('HDEL', keys.states, id)
  forget_attempts(keys.facts, id)
  flag(keys.facts, id, 'v')
end
