-- outbox/look: what became of jobs of an outbox, and whether the server still has the data that it had.
--
-- KEYS  bodies dead outbox results..
--       results: string  of each job, in the same order
-- ARGV  life   name for the life of the data, unless they have one
-- ARGV  ids..  of the jobs, at most 500
-- RETURNS  {life, outcome, ...}: for each job 'live', 'dead' if it is dead-lettered, 'ended' if it has succeeded or was
--          cancelled, or 'unknown'
-- TWICE    the same
-- COST     O(N), N ids
redis.call('SET', outbox, life, 'NX')
local answer = {redis.call('GET', outbox)}
for i = IDS, #ARGV do
  local id, outcome = ARGV[i], 'unknown'
  if redis.call('EXISTS', KEYS[RESULTS + i - IDS]) == 1 then
    outcome = 'ended'
  elseif redis.call('ZSCORE', dead, id) then
    outcome = 'dead'
  elseif redis.call('HEXISTS', bodies, id) == 1 then
    outcome = 'live'
  end
  answer[#answer + 1] = outcome
end
return answer
