-- barriers/renew: renew the lease of a participant, or learn the outcome of the round.
--
-- If another participant's lease has lapsed, this breaks the round.
--
-- KEYS  participants order rounds
-- ARGV  holder   string, as it was given to arrive
-- ARGV  round    the number of the round in which it takes part
-- ARGV  ttl_ms   number > 0
-- ARGV  changes  channel of the participants
-- RETURNS  1 the round is open | its outcome, as in arrive | '' this participant, or the round, is forgotten
-- TWICE    the same, counted from the second run
-- COST     O(log N), N participants
-- @include server_time
-- @include extend_ttl
-- @include end_round
local HOUR_MS = 3600000
if not redis.call('ZSCORE', participants, holder) then
  return redis.call('HGET', rounds, round) or ''
end
local now_ms = math.floor(server_time() / 1000)
local dead = redis.call('ZRANGEBYSCORE', participants, '-inf', now_ms, 'LIMIT', 0, 1)[1]
if dead then
  return end_round(participants, order, rounds, round, 'broken ' .. dead, changes)
end
-- First the commands that need no memory: after them a full server lets the last one pass.
extend_ttl(rounds, ttl_ms + HOUR_MS)
extend_ttl(order, ttl_ms + HOUR_MS)
extend_ttl(participants, ttl_ms)
redis.call('ZADD', participants, 'XX', now_ms + ttl_ms, holder)
return 1
