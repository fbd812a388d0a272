-- bells/leave: leave the line of those who sleep on a bell; what has just rung for the caller wakes another.
--
-- KEYS  bell
--       bell: list  at most one token, or who sleeps: see bells/sleep
-- ARGV  sleeper  string  'INBOX ADDRESS'
-- RETURNS  1
-- TWICE    1; there is one token, or one more sleeper wakes
-- COST     O(N), N sleepers
-- @include ring
if redis.call('LREM', bell, 0, sleeper) == 0 then
  ring(bell)
end
return 1
