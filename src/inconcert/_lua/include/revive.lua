-- Makes a dead letter that was taken from the dead as if it were put in now: of `job` there is its id; its envelope, '' for the one
-- that it has; and its unique name, '' for none, which it has again unless another has it now.
-- @include forget_attempts
local function revive(keys, job, now_ms)
  redis.call('HDEL', keys.reasons, job.id)
  forget_attempts(keys.facts, job.id)
  local envelope = job.envelope
  if envelope == '' then
    envelope = string.gsub(redis.call('HGET', keys.bodies, job.id) or '', '^%d+ ', '', 1)
  end
  redis.call('HSET', keys.bodies, job.id, string.format('%.0f ', now_ms) .. envelope)
  -- @each on_revive(keys, job, now_ms)
end
