-- reports/answer: answer to a process that has asked.
--
-- KEYS[1]  asked    string  who has asked last
-- ARGV[1]  inbox    of the asker
-- ARGV[2]  address  of the asker
-- ARGV[3]  report   JSON
-- RETURNS  1 somebody hears it | 0 the asker has gone
-- TWICE    answers again
-- COST     O(1)
-- @include publish
redis.call('EXISTS', KEYS[1])
local inbox, address, report = ARGV[1], ARGV[2], ARGV[3]
return publish(inbox, address .. ' report ' .. report) > 0 and 1 or 0
