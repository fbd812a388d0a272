-- Whether there are jobs that run after this one and have not ended.
local function has_children(children, id)
  return redis.call('ZRANGEBYLEX', children, '[' .. id .. ' ', '(' .. id .. '!', 'LIMIT', 0, 1)[1] ~= nil
end
