-- tasks/group_results: what became of some members of a group that keeps their results.
--
-- KEYS  groups bodies states dead reasons
-- ARGV  group  id of the group
-- ARGV  first  number >= 0, of the first member
-- ARGV  most   number > 0, how many are looked at
-- RETURNS  {given, status, about, ...}: how many numbers were given; for each from the first on, fewer if these have 1 MiB,
--          'succeeded' and its result as JSON, 'failed' and the reason, 'cancelled', 'unknown', 'waiting', 'delayed', 'running'
--          or 'queued' and '' | {-1} there is no such group | {-2} it keeps no results | {-3} it has let them go
-- TWICE    the same; nothing is changed
-- COST     O(N log D), N members, D dead jobs
-- @include read_group
-- @include member_of
-- @include if_small
local known = read_group(groups, group)
if not known then
  return {-1}
elseif known.results ~= 'kept' then
  return {known.results == '' and -2 or -3}
end

local function look(id)
  local status, about = string.match(redis.call('HGET', groups, id) or '', '^(%l+) (.*)$')
  if status then
    return status, about
  elseif redis.call('ZSCORE', dead, id) then
    return 'failed', redis.call('HGET', reasons, id) or ''
  elseif redis.call('HEXISTS', bodies, id) == 0 then
    return 'unknown', ''
  end
  local state, where = string.match(redis.call('HGET', states, id) or 'queued ', '^(%S+) (.*)$')
  if state == 'cancelling' then
    state = where == '' and 'queued' or 'running'
  end
  return state, ''
end

local answer, bytes = {known.given}, 0
for number = first, math.min(first + most, known.given) - 1 do
  if bytes >= 1048576 then
    break
  end
  local status, about = look(member_of(group, number))
  answer[#answer + 1], answer[#answer + 2] = status, about
  bytes = bytes + #status + #about
end
return if_small(answer, bytes)
