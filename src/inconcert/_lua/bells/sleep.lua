-- bells/sleep: join the line of those who sleep on a bell of a cluster, at its end; a token that is there wakes the first.
--
-- KEYS  bell
--       bell: list  at most one token; or who sleeps, 'INBOX ADDRESS' each; for a minute
-- ARGV  sleeper  string  'INBOX ADDRESS'
-- RETURNS  1
-- TWICE    1; one place in line
-- COST     O(N), N sleepers
-- @include ring
redis.call('LREM', bell, 0, sleeper)
local has_rung = redis.call('LINDEX', bell, 0) == '1'
if has_rung then
  redis.call('LPOP', bell)
end
redis.call('RPUSH', bell, sleeper)
redis.call('PEXPIRE', bell, 60000)
if has_rung then
  ring(bell)
end
return 1
