-- tasks/pause: pause or resume claims from a queue.
--
-- KEYS  paused bell recent older
-- ARGV  name       of the queue
-- ARGV  is_paused  1 | 0
-- ARGV  request    string, unique to this call
-- RETURNS  1 changed | 0 it was already so
-- TWICE    the same, and nothing is changed, even if the opposite was requested in between
-- COST     O(1)
-- @include ring
-- @include recall
-- @include remember
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = redis.call(is_paused == '1' and 'SADD' or 'SREM', paused, name)
remember(recent, older, request, answer)
if is_paused == '0' then
  ring(bell)
end
return answer
