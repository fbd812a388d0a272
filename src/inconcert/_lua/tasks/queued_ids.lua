-- tasks/queued_ids: the ids in a queue, the next one first, after one that was listed before.
--
-- KEYS  queue
-- ARGV  place  number >= 0, at which the last one was
-- ARGV  last   its id; '' to begin
-- ARGV  limit  number from 1 to 250
-- RETURNS  {first, id, ...}: the place of the first of these, and the ids. What stays in the queue is not left out; if the
--          last one left it, or has moved by far, they are those at its front.
-- TWICE    the same, if the queue is the same; nothing is changed
-- COST     O(Q / 400 + limit), Q ids; O(Q / 400 + 3,000) if the last one has moved
local MOST_CLAIMED, MOST_REQUEUED = 2500, 500  -- since then, if it is to be found
local first = 0
if last ~= '' and redis.call('LINDEX', queue, place) == last then
  first = place + 1
elseif last ~= '' then
  local start = math.max(0, place - MOST_CLAIMED)
  for i, id in ipairs(redis.call('LRANGE', queue, start, place + MOST_REQUEUED)) do
    if id == last then
      first = start + i
      break
    end
  end
end
local answer = {first}
for i, id in ipairs(redis.call('LRANGE', queue, first, first + limit - 1)) do
  answer[i + 1] = id
end
return answer
