-- barriers/abort: break the barrier: the open round, and every arrival until it is reset.
--
-- KEYS[1]  participants  zset  holder -> lease end, server ms; of the open round only
-- KEYS[2]  order         zset  holder -> when it arrived, server us; of the open round only
-- KEYS[3]  rounds        hash  open -> the number of the open round; aborted -> that of the aborted one, until it is reset;
--          number -> its outcome, the last 100
-- KEYS[4]  recent        hash  request -> its answer, 120 s
-- KEYS[5]  older         hash  the same, from before; at most 120 s
-- ARGV[1]  request  string, unique to this call
-- ARGV[2]  changes  channel of the participants; the message is 'NUMBER aborted'
-- RETURNS  1 broken | 0 it was broken before
-- TWICE    the same, and nothing more is broken, even if it was reset in between
-- COST     O(1)
-- @include server_time
-- @include recall
-- @include remember
-- @include extend_ttl
-- @include end_round
local participants, order, rounds, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local request, changes = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
local is_whole = 1 - redis.call('HEXISTS', rounds, 'aborted')
if is_whole == 1 then
  local round = redis.call('HGET', rounds, 'open') or string.format('%.0f', server_time())
  end_round(participants, order, rounds, round, 'aborted', changes)
  redis.call('HSET', rounds, 'aborted', round)
end
extend_ttl(rounds, 86400000)
remember(recent, older, request, is_whole)
return is_whole
