-- The job that has this unique name now, or nil: one that has not ended, or whose window has not.
local function live_job_of_name(unique, bodies, dead, name, now_ms)
  local id, ends = string.match(redis.call('HGET', unique, name) or '', '^(%S+) (%d+)$')
  if not id then
    return nil
  end
  local is_live = tonumber(ends) > now_ms
  if ends == '0' then
    is_live = redis.call('HEXISTS', bodies, id) == 1 and not redis.call('ZSCORE', dead, id)
  end
  return is_live and id or nil
end
