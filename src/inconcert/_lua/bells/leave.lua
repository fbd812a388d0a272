-- bells/leave: leave the line of those who sleep on a bell; what has just rung for the caller wakes another.
--
-- KEYS[1]  bell     list    at most one token, or who sleeps: see bells/sleep
-- ARGV[1]  sleeper  string  'INBOX ADDRESS'
-- RETURNS  1
-- TWICE    1; there is one token, or one more sleeper wakes
-- COST     O(N), N sleepers
-- @include ring
if redis.call('LREM', KEYS[1], 0, ARGV[1]) == 0 then
  ring(KEYS[1])
end
return 1
