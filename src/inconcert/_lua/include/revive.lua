-- Makes a dead letter that was taken from the dead as if it were put in now: with this envelope, '' for the one that it
-- has, and with its unique name, '' for none, unless another has that now.
-- @include forget_attempts
-- @include live_job_of_name
-- @include take_name
local function revive(keys, id, envelope, name, now_ms)
  for _, key in ipairs({keys.reasons, keys.outcomes}) do
    redis.call('HDEL', key, id)
  end
  forget_attempts(keys.facts, id)
  if envelope == '' then
    envelope = string.gsub(redis.call('HGET', keys.bodies, id) or '', '^%d+ ', '', 1)
  end
  redis.call('HSET', keys.bodies, id, string.format('%.0f ', now_ms) .. envelope)
  if name ~= '' and not live_job_of_name(keys.unique, keys.bodies, keys.dead, name, now_ms) then
    take_name(keys.unique, keys.checks, id, name, '0', now_ms)
  end
end
