-- tasks/attempts: the attempts of a job that failed.
--
-- KEYS  failed_attempts kept_attempts
--       kept_attempts: string  those of this job, once it has ended
-- ARGV  id  string
-- RETURNS  its lines, JSON each, the latest last; '' if there are none
-- TWICE    the same; nothing is changed
-- COST     O(N), N bytes of these: at most 32 KiB
-- @include if_small
local lines = redis.call('HGET', failed_attempts, id) or redis.call('GET', kept_attempts) or ''
return if_small(lines, #lines)
