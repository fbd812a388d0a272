-- An answer, if it is small. Of a large one only how large it is: the client has it sent again when it has room for it, by the
-- other form of the script, in which `has_room` is true.
local function if_small(answer, bytes)
  local has_room = false
  if bytes > 16384 and not has_room then
    return redis.error_reply('LARGE ' .. bytes)
  end
  return answer
end
