-- schedules/due: the schedules to be looked at now, which other workers leave alone for a while; and when to ask again.
--
-- KEYS  schedules definitions looks looked
-- ARGV  hold_ms  integer > 0: for how long others leave them alone
-- ARGV  ttl_ms   integer > 0: for how long it is known when one looked last
-- RETURNS  {now_ms, next_ms, held_ms, {{id, 'SINCE LAST RULE', signed JSON}, ...}}: the server's clock; when to ask for
--          others, or -1; until when these are held, in text, with fractions; at most 100 schedules, or about 1 MiB
-- TWICE    leaves out those that were given before, which are given again after hold_ms
-- COST     O(K log N), K schedules that are due, N schedules; O(N log N) after the clock was set back
-- @include server_time
local MOST, MOST_BYTES = 100, 1048576

local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local held_ms = string.format('%.3f', now_us / 1000 + hold_ms)  -- to the microsecond: unlike that of any other look
if tonumber(redis.call('GET', looked) or '0') > now_ms then  -- the clock was set back: each is looked at
  redis.call('ZUNIONSTORE', looks, 1, looks, 'WEIGHTS', 0)
end
redis.call('SET', looked, string.format('%.0f', now_ms), 'PX', ttl_ms)
local later = '(' .. string.format('%.0f', now_ms)
local next_ms = math.ceil(redis.call('ZRANGEBYSCORE', looks, later, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2] or '-1')
local taken, bytes = {}, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', looks, '-inf', now_ms, 'LIMIT', 0, MOST)) do
  if bytes >= MOST_BYTES then
    break
  end
  local state, definition = redis.call('HGET', schedules, id), redis.call('HGET', definitions, id)
  if not state or not definition then
    redis.call('ZREM', looks, id)  -- only what does not come from us is so
  else
    bytes = bytes + #definition
    redis.call('ZADD', looks, held_ms, id)
    taken[#taken + 1] = {id, state, definition}
  end
end
if redis.call('ZCOUNT', looks, '-inf', now_ms) > 0 then
  next_ms = now_ms
end
return {now_ms, next_ms, held_ms, taken}
