-- Notes the end of a job that others wait for, or that waited for others, or of the last of a group;
-- `resolve_dependents` processes it.  Returns whether it is such a job.
-- @include has_children
-- @include group_of
-- @include count_member
local function note_end(keys, id, outcome)
  local group = group_of(id)
  local is_last = group and count_member(keys, group, string.match(outcome, '^%l+')) or false
  if has_children(keys.children, id) then
    redis.call('HSET', keys.outcomes, id, outcome)
  elseif redis.call('HEXISTS', keys.parents, id) == 0 then
    return is_last
  end
  redis.call('RPUSH', keys.news, id)
  return true
end
