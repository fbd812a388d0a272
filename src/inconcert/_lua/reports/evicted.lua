-- reports/evicted: tell holders that their leases were released by force; they renew, and find them lost.
--
-- KEYS[1]   asked    string  who has asked last; every process listens to what scripts on it publish
-- ARGV[1]   inboxes  prefix of each session's inbox channel
-- ARGV[2..] holders  'session.number' of each, at most 1,000
-- RETURNS   how many processes heard it
-- TWICE     tells them again
-- COST      O(N), N holders
-- @include publish
redis.call('EXISTS', KEYS[1])
local inboxes, heard = ARGV[1], 0
for i = 2, #ARGV do
  heard = heard + publish(inboxes .. string.match(ARGV[i], '^(.*)%.'), ARGV[i] .. ' evicted ')
end
return heard
