-- reports/evicted: tell holders that their leases were released by force; they renew, and find them lost.
--
-- KEYS  asked
-- ARGV  inboxes    prefix of each session's inbox channel
-- ARGV  holders..  'session.number' of each, at most 1,000
-- RETURNS  how many processes heard it
-- TWICE    tells them again
-- COST     O(N), N holders
-- @include publish
redis.call('EXISTS', asked)
local heard = 0
for i = HOLDERS, #ARGV do
  heard = heard + publish(inboxes .. string.match(ARGV[i], '^(.*)%.'), ARGV[i] .. ' evicted ')
end
return heard
