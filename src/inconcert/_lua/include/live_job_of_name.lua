-- The job that has this unique name now, or nil: one that has not ended, or whose window has not.  If one that was to run after the
-- one that it replaces has ended first, that is the other one, if it has not.
local function live_job_of_name(unique, bodies, dead, name, now_ms)
  local id, ends, before = string.match(redis.call('HGET', unique, name) or '', '^(%S+) (%d+) ?(%S*)$')
  if not id then
    return nil
  elseif ends ~= '0' then
    return tonumber(ends) > now_ms and id or nil
  end
  for _, each in ipairs({id, before ~= '' and before or nil}) do
    if redis.call('HEXISTS', bodies, each) == 1 and not redis.call('ZSCORE', dead, each) then
      return each
    end
  end
  return nil
end
