-- barriers/reset: let an aborted barrier begin again; a round with waiters is broken.
--
-- KEYS  participants order rounds recent older
-- ARGV  request  string, unique to this call
-- ARGV  changes  channel of the participants; the message is 'NUMBER aborted'
-- RETURNS  1 it was aborted, or others waited | 0 there was nothing to do
-- TWICE    the same, and nothing more is broken or reset
-- COST     O(1)
-- @include recall
-- @include remember
-- @include end_round
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local is_done = redis.call('HDEL', rounds, 'aborted')
if redis.call('EXISTS', order) == 1 then
  end_round(participants, order, rounds, redis.call('HGET', rounds, 'open'), 'aborted', changes)
  is_done = 1
end
remember(recent, older, request, is_done)
return is_done
