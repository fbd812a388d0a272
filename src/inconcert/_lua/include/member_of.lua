-- The id of the member of this number, as `group_ids.py` makes it.
local function member_of(group, number)
  local head, tail = string.match(group, '^(.+)(%.%d+)$')
  local text = string.format('%.0f', number)
  return string.format('%s~%x%s%s', head, #text, text, tail)
end
