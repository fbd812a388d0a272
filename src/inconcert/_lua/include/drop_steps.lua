-- Drops the steps of jobs that have ended.
local function drop_steps(steps, stepped, ids)
  if redis.call('EXISTS', stepped) == 0 then
    return
  end
  for i, last in ipairs(redis.call('HMGET', stepped, unpack(ids))) do
    local fields = {}
    for number = 1, tonumber(last or 0) do
      fields[number] = number .. ' ' .. ids[i]
    end
    if last then
      redis.call('HDEL', steps, unpack(fields))
    end
  end
  redis.call('HDEL', stepped, unpack(ids))
end
