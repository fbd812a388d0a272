-- Notes the end of a job that others wait for, or that waited for others; `resolve_dependents` processes it.
-- Returns whether it is such a job.
-- @include has_children
local function note_end(parents, children, outcomes, news, id, outcome)
  if has_children(children, id) then
    redis.call('HSET', outcomes, id, outcome)
  elseif redis.call('HEXISTS', parents, id) == 0 then
    return false
  end
  redis.call('RPUSH', news, id)
  return true
end
