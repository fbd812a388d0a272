-- signals/join: stand in line for a signal, or look again from one's place in it.
--
-- KEYS  waiters handed earlier recent older last
-- ARGV  address  'session.number', unique to this waiter
-- ARGV  ticket   number, 0 to join, else the place to have back
-- ARGV  look_ms  number > 0: how long the line may go without anyone who looks
-- RETURNS  {0, ticket, joined, look_ms}: in line (joined is 1 if it was not before)
--          | {1, payload} it was notified | {2, payload} it was in line when this was broadcast
-- TWICE    the same place, or what came for it meanwhile
-- COST     O(log N), N waiters
-- @include server_time
-- @include recall
-- @include remember
local newest = redis.call('ZREVRANGE', waiters, 0, 0, 'WITHSCORES')[2]
if ticket == 0 then
  ticket = tonumber(recall(recent, older, address) or 0)
end
if ticket == 0 then
  local said_at = tonumber(string.match(redis.call('GETRANGE', last, 0, 16), '^%d*')) or 0
  ticket = math.max(server_time(), (tonumber(newest) or 0) + 1, said_at + 1)  -- the clock may have been set back
  remember(recent, older, address, string.format('%.0f', ticket))
else
  local payload = recall(handed, earlier, address)
  if payload then
    return {1, payload}
  end
  local said_at, said = string.match(redis.call('GET', last) or '', '^(%d+) (.*)$')
  if said and tonumber(said_at) > ticket then
    return {2, said}
  end
end
local joined = redis.call('ZADD', waiters, 'NX', string.format('%.0f', ticket), address)
redis.call('PEXPIRE', waiters, look_ms * 2)
return {0, ticket, joined, look_ms}
