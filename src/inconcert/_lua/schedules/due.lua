-- schedules/due: the schedules to be looked at now, which other workers leave alone for a while; and when to ask again.
--
-- KEYS  schedules definitions looks looks_in_code declared looked
-- ARGV  hold_ms  number > 0: for how long others leave them alone
-- ARGV  ttl_ms   integer > 0: for how long it is known when one looked last
-- ARGV  ids..    of schedules in the code of this worker, at most 1,000: it is given no others in code
-- RETURNS  {now_ms, next_ms, held_ms, {{id, 'SINCE LAST[,BEFORE] RULE', signed JSON}, ...}, {id, ...}}: the server's clock; when to
--          ask for others, or -1; until when these are held, in text, with fractions; at most 100 schedules, or about
--          1 MiB; those of `ids` that are not declared
-- TWICE    leaves out those that were given before, which are given again after hold_ms
-- COST     O((I + K) log N), I ids, K schedules that are due, N schedules; O(N log N) after the clock was set back
-- @include server_time
local MOST, MOST_BYTES, MINUTE_MS = 100, 1048576, 60000

local now_us = server_time()
local now_ms = math.floor(now_us / 1000)
local held_ms = string.format('%.3f', now_us / 1000 + hold_ms)  -- to the microsecond: unlike that of any other look
if tonumber(redis.call('GET', looked) or '0') > now_ms then  -- the clock was set back: each is looked at
  redis.call('ZUNIONSTORE', looks, 1, looks, 'WEIGHTS', 0)
  redis.call('ZUNIONSTORE', looks_in_code, 1, looks_in_code, 'WEIGHTS', 0)
end
redis.call('SET', looked, string.format('%.0f', now_ms), 'PX', ttl_ms)
local later = '(' .. string.format('%.0f', now_ms)
local next_ms = tonumber(redis.call('ZRANGEBYSCORE', looks, later, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) or math.huge
local due_in_code, undeclared, seen = {}, {}, {}
if #ARGV >= IDS then
  local followed = redis.call('ZMSCORE', declared, unpack(ARGV, IDS))
  local at = redis.call('ZMSCORE', looks_in_code, unpack(ARGV, IDS))
  for i = 1, #followed do
    local id, at_ms = ARGV[IDS + i - 1], followed[i] and at[i] and tonumber(at[i]) or math.huge
    if not followed[i] then
      undeclared[#undeclared + 1] = id
    elseif now_ms - followed[i] >= MINUTE_MS then
      seen[#seen + 1] = now_ms
      seen[#seen + 1] = id
    end
    if at_ms <= now_ms then
      due_in_code[#due_in_code + 1] = id
    else
      next_ms = math.min(next_ms, at_ms)
    end
  end
  if #seen > 0 then
    redis.call('ZADD', declared, unpack(seen))
  end
end
local left = #due_in_code + redis.call('ZCOUNT', looks, '-inf', now_ms)
local due = redis.call('ZRANGEBYSCORE', looks, '-inf', now_ms, 'LIMIT', 0, MOST)
local taken, bytes = {}, 0
for _, line in ipairs({{looks_in_code, due_in_code}, {looks, due}}) do
  for _, id in ipairs(line[2]) do
    if #taken >= MOST or bytes >= MOST_BYTES then
      break
    end
    left = left - 1
    local state, definition = redis.call('HGET', schedules, id), redis.call('HGET', definitions, id)
    if not state or not definition then
      redis.call('ZREM', line[1], id)  -- a value that we did not write
    else
      bytes = bytes + #definition
      redis.call('ZADD', line[1], held_ms, id)
      taken[#taken + 1] = {id, state, definition}
    end
  end
end
if left > 0 then
  next_ms = now_ms
end
return {now_ms, next_ms == math.huge and -1 or math.ceil(next_ms), held_ms, taken, undeclared}
