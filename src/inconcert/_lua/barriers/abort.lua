-- barriers/abort: break the open round, if anyone takes part in it.
--
-- KEYS[1]  participants  zset  holder -> lease end, server ms; of the open round only
-- KEYS[2]  order         zset  holder -> when it arrived, server us; of the open round only
-- KEYS[3]  rounds        hash  open -> the number of the open round; number -> what became of it, the last 100
-- KEYS[4]  recent        hash  request -> its answer, 120 s
-- KEYS[5]  older         hash  the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  changes  the channel on which the participants listen; they hear 'NUMBER aborted'
-- RETURNS  1 broken | 0 nobody took part
-- TWICE    the same, and nothing more is broken, even if a round was begun in between
-- COST     O(1)
-- @include recall
-- @include remember
-- @include outlive
-- @include end_round
local participants, order, rounds, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local request, changes = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local is_anyone_there = redis.call('EXISTS', order)
if is_anyone_there == 1 then
  end_round(participants, order, rounds, redis.call('HGET', rounds, 'open'), 'aborted', changes)
end
remember(recent, older, request, is_anyone_there)
return is_anyone_there
