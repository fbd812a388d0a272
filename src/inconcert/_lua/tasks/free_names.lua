-- tasks/free_names: release the unique names of jobs that have started.
--
-- KEYS  unique checks recent older
-- ARGV  request  string, unique to this call
-- ARGV  jobs..   name, id: for each job
-- RETURNS  how many names were freed
-- TWICE    the same, and nothing is changed, even if a job has its name again because it was replayed in between
-- COST     O(N log U), N jobs given, U names taken
-- @include recall
-- @include remember
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
redis.call('HDEL', recent, request)  -- first: needs no memory, so a full server accepts the rest
local freed = 0
for i = JOBS, #ARGV, 2 do
  if redis.call('HGET', unique, ARGV[i]) == ARGV[i + 1] .. ' 0' then
    redis.call('HDEL', unique, ARGV[i])
    redis.call('ZREM', checks, ARGV[i])
    freed = freed + 1
  end
end
remember(recent, older, request, freed)
return freed
