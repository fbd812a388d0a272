-- Takes an id out of the ids, separated by spaces, that a hash has of a job.
-- Returns whether it was there, and how many are left.
local function strike_out(hash, job, id)
  local left, was_there = {}, false
  for other in string.gmatch(redis.call('HGET', hash, job) or '', '%S+') do
    if other == id then
      was_there = true
    else
      left[#left + 1] = other
    end
  end
  if was_there and #left > 0 then
    redis.call('HSET', hash, job, table.concat(left, ' '))
  elseif was_there then
    redis.call('HDEL', hash, job)
  end
  return was_there, #left
end
