-- The answer to a request that ran before, a number, an id and the name of a queue, or nil; see remember_answer().
-- @include recall
local function recall_answer(recent, older, request)
  local number, id, queue_name = string.match(recall(recent, older, request) or '', '^(%d) (%S*) (.*)$')
  return number and {tonumber(number), id, queue_name}
end
