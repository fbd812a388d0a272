-- Forgets which parents a removed job waited for: a parent's outcome is dropped when no other job needs it.
-- Returns the number of parents.
local function forget_parents(parents, children, followers, outcomes, id)
  local count = 0
  for parent in string.gmatch(redis.call('HGET', parents, id) or '', '%S+') do
    redis.call('ZREM', followers, parent .. ' ' .. id)
    if redis.call('HINCRBY', children, parent, -1) <= 0 then
      redis.call('HDEL', children, parent)
      redis.call('HDEL', outcomes, parent)
    end
    count = count + 1
  end
  redis.call('HDEL', parents, id)
  return count
end
