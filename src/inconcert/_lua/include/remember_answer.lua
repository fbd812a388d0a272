-- Returns an answer, a number, an id and the name of a queue, and keeps it, so that a second run gives the same.
-- @include remember
local function remember_answer(recent, older, request, number, id, queue_name)
  remember(recent, older, request, number .. ' ' .. id .. ' ' .. queue_name)
  return {number, id, queue_name}
end
