-- The id of the group that a job is a member of, by its own, 'HEAD~NUMBER.PARTITION'; nil if it is not a member.
local function group_of(id)
  if not string.find(id, '~', 1, true) then
    return nil
  end
  local head, tail = string.match(id, '^(.+)~%x%d+(%.%d+)$')
  return head and head .. tail
end
