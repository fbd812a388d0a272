-- Forgets that a job ran after this one: the outcome of this one is dropped when no other job needs it.
-- @include has_children
local function forget_child(children, followers, outcomes, id, child)
  redis.call('ZREM', followers, id .. ' ' .. child)
  redis.call('ZREM', children, id .. ' ' .. child)
  if not has_children(children, id) then
    redis.call('HDEL', outcomes, id)
  end
end
