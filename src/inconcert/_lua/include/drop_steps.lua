-- Drops the steps of jobs that have ended, what was sent to them, and what is noted of undoing them.
-- @include packed_names
local function drop_steps(keys, ids)
  if redis.call('EXISTS', keys.stepped, keys.received, keys.undo) == 0 then
    return
  end
  for i, last in ipairs(redis.call('HMGET', keys.stepped, unpack(ids))) do
    local fields = {}
    for number = 1, tonumber(last or 0) do
      fields[number] = number .. ' ' .. ids[i]
    end
    if last then
      redis.call('HDEL', keys.steps, unpack(fields))
    end
  end
  for i, received in ipairs(redis.call('HMGET', keys.received, unpack(ids))) do
    if received then
      local fields = {}
      for number, name in ipairs(packed_names(string.match(received, '^%d+ %d+ (.*)$'))) do
        fields[number] = name .. ' ' .. ids[i]
      end
      redis.call('HDEL', keys.messages, unpack(fields))
    end
  end
  for _, key in ipairs({keys.stepped, keys.received, keys.awaited, keys.undo}) do
    redis.call('HDEL', key, unpack(ids))
  end
end
