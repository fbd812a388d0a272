-- reports/ask: ask every process of the namespace what it holds and what it waits for.
--
-- KEYS  asked
-- ARGV  inboxes   prefix of the inbox of every process
-- ARGV  pattern   glob that matches all of these
-- ARGV  address   of the asker
-- ARGV  quiet_ms  number, ask only if nobody else has within this time; 0 to ask in any case
-- RETURNS  the sessions that were asked, at most 10,000 | 0 somebody else has asked
-- TWICE    asks them again
-- COST     O(N + M), N channels of the server, M processes
-- @include publish
if quiet_ms > 0 and not redis.call('SET', asked, address, 'NX', 'PX', quiet_ms) and redis.call('GET', asked) ~= address then
  return 0
end
local listed = string.find(inboxes, '^[^:]*:{') and 'SHARDCHANNELS' or 'CHANNELS'
local found = redis.call('PUBSUB', listed, pattern)
local count = math.min(#found, 10000)
local entries = math.max(10, math.min(1000, math.floor(20000 / math.max(1, count))))
local sessions = {}
for n = 1, count do
  local inbox = found[n]
  sessions[n] = string.sub(inbox, #inboxes + 1)
  publish(inbox, 'reports ask ' .. address .. ' ' .. entries)
end
return sessions
