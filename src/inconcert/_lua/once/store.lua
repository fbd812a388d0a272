-- once/store: keep a computed value, and hand it to all processes that wait for it.
--
-- KEYS  value holders waiters
-- ARGV  holder   string: whose lease it was computed under
-- ARGV  text     string, not empty: the value
-- ARGV  ttl_ms   integer > 0: for how long it is fresh
-- ARGV  kept_ms  integer > 0: for how long it is kept
-- ARGV  changes  channel of the processes that wait; the message is the value
-- RETURNS  1 it is kept | 0 the lease was lost
-- TWICE    it is kept and handed out again, for as long from then on; nothing is changed once the lease has ended
-- COST     O(N W), N bytes of the value, W processes that listen
-- @include server_time
-- @include publish
if not redis.call('ZSCORE', holders, holder) then
  return 0
end
redis.call('SET', value, string.format('%.0f ', server_time() / 1000 + ttl_ms) .. text, 'PX', kept_ms)
redis.call('DEL', waiters)  -- they all get it by the message, and no grant goes down the line
publish(changes, text)
return 1
