-- barriers/abort: break the barrier: the open round, and every arrival until it is reset.
--
-- KEYS  participants order rounds recent older
-- ARGV  request  string, unique to this call
-- ARGV  changes  channel of the participants; the message is 'NUMBER aborted'
-- RETURNS  1 broken | 0 it was broken before
-- TWICE    the same, and nothing more is broken, even if it was reset in between
-- COST     O(1)
-- @include server_time
-- @include recall
-- @include remember
-- @include extend_ttl
-- @include end_round
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
