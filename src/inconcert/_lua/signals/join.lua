-- signals/join: stand in line for a signal, or look again from one's place in it.
--
-- KEYS[1]  waiters  zset    address -> ticket, server us; 1 h
-- KEYS[2]  handed   hash    address -> the payload that it was notified of, until it says that it has it; 120 s
-- KEYS[3]  earlier  hash    the same, from before; at most 120 s
-- KEYS[4]  recent   hash    request -> its answer, 120 s
-- KEYS[5]  older    hash    the same, from before; at most 120 s
-- KEYS[6]  last     string  'AT_US PAYLOAD' of the last broadcast; 60 s
-- ARGV[1]  address  'session.number', unique to this waiter
-- ARGV[2]  ticket   0 to join, else the place to have back
-- ARGV[3]  look_ms  integer > 0: how long the line may go without anyone who looks
-- RETURNS  {0, ticket, joined, look_ms}: in line (joined is 1 if it was not before)
--          | {1, payload} it was notified | {2, payload} it was in line when this was broadcast
-- TWICE    the same place, or what came for it meanwhile
-- COST     O(log N), N waiters
-- @include server_time
-- @include recall
-- @include remember
local waiters, handed, earlier, recent, older, last = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local address, ticket, look_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
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
