-- barriers/renew: renew the lease of a participant, or learn the outcome of the round.
--
-- If another participant's lease has lapsed, this breaks the round.
--
-- KEYS[1]  participants  zset  holder -> lease end, server ms; of the open round only
-- KEYS[2]  order         zset  holder -> when it arrived, server us; of the open round only
-- KEYS[3]  rounds        hash  open -> the number of the open round; aborted -> that of the aborted one, until it is reset;
--          number -> its outcome, the last 100
-- ARGV[1]  holder   string, as it was given to arrive
-- ARGV[2]  round    the number of the round in which it takes part
-- ARGV[3]  ttl_ms   integer > 0
-- ARGV[4]  changes  channel of the participants
-- RETURNS  1 the round is open | its outcome, as in arrive | '' this participant, or the round, is forgotten
-- TWICE    the same, counted from the second run
-- COST     O(log N), N participants
-- @include server_time
-- @include extend_ttl
-- @include end_round
local HOUR_MS = 3600000
local participants, order, rounds = KEYS[1], KEYS[2], KEYS[3]
local holder, round, ttl_ms, changes = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
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
