-- reports/answer: answer to a process that has asked.
--
-- KEYS  asked
-- ARGV  inbox    of the asker
-- ARGV  address  of the asker
-- ARGV  report   JSON
-- RETURNS  1 somebody hears it | 0 the asker has gone
-- TWICE    answers again
-- COST     O(1)
-- @include publish
redis.call('EXISTS', asked)
return publish(inbox, address .. ' report ' .. report) > 0 and 1 or 0
