-- tasks/queued_ids: the ids in a queue, the next one first, after one that was listed before.
--
-- KEYS[1]  queue     list    ids, the next one first
-- ARGV[1]  place     integer >= 0, at which the last one was
-- ARGV[2]  last      its id; '' to begin
-- ARGV[3]  limit     integer from 1 to 250
-- RETURNS  {first, id, ...}: the place of the first of these, and the ids. What stays in the queue is not left out; if the
--          last one left it, or has moved by far, they are those at its front.
-- TWICE    the same, if the queue is the same; nothing is changed
-- COST     O(Q / 400 + limit), Q ids; O(Q / 400 + 3,000) if the last one has moved
local MOST_CLAIMED, MOST_REQUEUED = 2500, 500  -- since then, if it is to be found
local queue, place, last, limit = KEYS[1], tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
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
