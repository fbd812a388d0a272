-- The id of a group's callback.
local function callback_of(group)
  return (string.gsub(group, '%.%d+$', '~then%0'))
end
