-- tasks/pause: pause or resume claims from a queue.
--
-- KEYS[1]  paused     set     names of paused queues
-- KEYS[2]  bell       list    at most one token; of the queue
-- KEYS[3]  recent     hash    request -> its answer, 120 s
-- KEYS[4]  older      hash    earlier entries of the same; at most 120 s
-- ARGV[1]  name       of the queue
-- ARGV[2]  is_paused  1 | 0
-- ARGV[3]  request    string, unique to this call
-- RETURNS  1 changed | 0 it was already so
-- TWICE    the same, and nothing is changed, even if the opposite was requested in between
-- COST     O(1)
-- @include ring
-- @include recall
-- @include remember
local paused, bell, recent, older, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[3]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
answer = redis.call(ARGV[2] == '1' and 'SADD' or 'SREM', paused, ARGV[1])
remember(recent, older, request, answer)
if ARGV[2] == '0' then
  ring(bell)
end
return answer
