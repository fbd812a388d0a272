-- How the group of a waiting callback has ended, as a parent does: the callback runs if it is 'succeeded '.  Nil while the
-- callback is to wait, '' if the group is not known.
-- @include read_group
local function group_outcome(groups, id)
  local group = read_group(groups, id)
  if not group then
    return ''
  elseif group.state == 'open' or group.live > 0 then
    return nil
  elseif group.when == 'ended' or group.succeeded == group.total then
    return 'succeeded '
  end
  return group.failed == 0 and 'incomplete ' or nil
end
