-- Keeps a message of a job under its name, if there is none yet, and notes the name, so that both go with the job.
-- `received` is what the job has already, as drop_steps() reads it.  Returns whether it was kept.
-- @include flag
local function keep_message(facts, messages, received, id, name, message)
  if redis.call('HSETNX', messages, name .. ' ' .. id, message) == 0 then
    return false
  end
  flag(facts, id, 'm')
  local count, bytes, names = string.match(redis.call('HGET', received, id) or '0 0 ', '^(%d+) (%d+) (.*)$')
  redis.call('HSET', received, id, count + 1 .. ' ' .. bytes + #message .. ' ' .. names .. name)
  return true
end
