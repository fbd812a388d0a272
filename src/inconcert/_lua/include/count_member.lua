-- Counts what became of a member of a group: 'succeeded' | 'failed' | 'cancelled', or of a dead one 'replayed' | 'purged'.
-- The `outcome` of one that is gone is kept, if the group keeps results.
-- Returns whether there are news.
-- @include read_group
-- @include write_group
local function count_member(keys, id, what, member, outcome)
  local group = read_group(keys.groups, id)
  if not group then
    return false
  end
  if what == 'replayed' or what == 'purged' then
    group.failed = group.failed - 1
  end
  if what == 'purged' then
    group.cancelled = group.cancelled + 1  -- it can succeed no more
  elseif what ~= 'replayed' then
    group[what] = group[what] + 1
  end
  if outcome and group.results == 'kept' then
    redis.call('HSET', keys.groups, member, outcome)
  end
  return write_group(keys, id, group)
end
