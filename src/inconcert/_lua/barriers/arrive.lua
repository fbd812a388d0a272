-- barriers/arrive: take part in the open round, and end it if all have arrived.
--
-- If a participant's lease has lapsed, the round is broken first, and the next arrival begins a new one.  While the
-- barrier is aborted, nobody takes part.
--
-- KEYS  participants order rounds recent older
-- ARGV  holder   string, unique to this call
-- ARGV  parties  number > 0, how many must arrive
-- ARGV  ttl_ms   number > 0
-- ARGV  waits    1, or 0 to take part only as the last to arrive
-- ARGV  changes  channel of the participants; the message is the outcome of the round
-- RETURNS  {number, ''} takes part, and waits for the others | {number, outcome}: 'NUMBER passed HOLDER ...' in the
--          order of arrival, 'NUMBER broken HOLDER' or 'NUMBER aborted' | {'', ''} others are missing, and it does not wait
-- TWICE    the same round again, with what has become of it since; the lease counts from the first run.
--          {'', ''} if it has left in between
-- COST     O(log N); O(N) for the last to arrive; N participants
-- @include server_time
-- @include recall
-- @include remember
-- @include extend_ttl
-- @include end_round
local HOUR_MS = 3600000
local round = recall(recent, older, holder)
if round == 'left' then
  return {'', ''}
elseif round then
  return {round, redis.call('HGET', rounds, round) or ''}
end

round = redis.call('HGET', rounds, 'aborted')
if round then
  extend_ttl(rounds, 86400000)
  remember(recent, older, holder, round)
  return {round, redis.call('HGET', rounds, round)}
end

local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
-- A number is a time at first, so that none comes twice when the last one is forgotten.
round = redis.call('HGET', rounds, 'open') or string.format('%.0f', now_us)
local dead = redis.call('ZRANGEBYSCORE', participants, '-inf', now_ms, 'LIMIT', 0, 1)[1]
if dead then
  end_round(participants, order, rounds, round, 'broken ' .. dead, changes)
  round = redis.call('HGET', rounds, 'open')
end

if redis.call('EXISTS', participants) == 0 and redis.call('EXISTS', order) == 1 then
  redis.call('UNLINK', order)  -- of participants whose leases have all lapsed
end
local outcome = ''
if redis.call('ZCARD', order) + 1 >= parties then
  local all = redis.call('ZRANGE', order, 0, -1)
  all[#all + 1] = holder
  outcome = end_round(participants, order, rounds, round, 'passed ' .. table.concat(all, ' '), changes)
elseif waits == '0' then
  return {'', ''}
else
  local last = redis.call('ZRANGE', order, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', order, string.format('%.0f', math.max(now_us, (tonumber(last) or 0) + 1)), holder)
  redis.call('ZADD', participants, now_ms + ttl_ms, holder)
  redis.call('HSET', rounds, 'open', round)
  extend_ttl(order, ttl_ms + HOUR_MS)  -- it cannot be extended while its slot moves key by key
  extend_ttl(participants, ttl_ms)
  extend_ttl(rounds, ttl_ms + HOUR_MS)
end
remember(recent, older, holder, round)
return {round, outcome}
