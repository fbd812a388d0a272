-- barriers/reset: let an aborted barrier begin again; a round with waiters is broken.
--
-- KEYS[1]  participants  zset  holder -> lease end, server ms; of the open round only
-- KEYS[2]  order         zset  holder -> when it arrived, server us; of the open round only
-- KEYS[3]  rounds        hash  open -> the number of the open round; aborted -> that of the aborted one, until it is reset;
--          number -> its outcome, the last 100
-- KEYS[4]  recent        hash  request -> its answer, 120 s
-- KEYS[5]  older         hash  the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  changes  channel of the participants; the message is 'NUMBER aborted'
-- RETURNS  1 it was aborted, or others waited | 0 there was nothing to do
-- TWICE    the same, and nothing more is broken or reset
-- COST     O(1)
-- @include recall
-- @include remember
-- @include end_round
local participants, order, rounds, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local request, changes = ARGV[1], ARGV[2]
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
