-- tasks/free_names: release the unique names of jobs that have started.
--
-- KEYS[1]    unique  hash  unique name -> id of the job that has it, and end of its window, or 0
-- KEYS[2]    checks  zset  unique name -> when to check whether it is still taken, server ms
-- KEYS[3]    recent  hash  request -> its answer, 120 s
-- KEYS[4]    older   hash  earlier entries of the same; at most 120 s
-- ARGV[1]    request string, unique to this call
-- ARGV[2..]  jobs    name, id: for each job
-- RETURNS    how many names were freed
-- TWICE      the same, and nothing is changed, even if a job has its name again because it was replayed in between
-- COST       O(N log U), N jobs given, U names taken
-- @include recall
-- @include remember
local unique, checks, recent, older, request = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
redis.call('HDEL', recent, request)  -- first: needs no memory, so a full server accepts the rest
local freed = 0
for i = 2, #ARGV, 2 do
  if redis.call('HGET', unique, ARGV[i]) == ARGV[i + 1] .. ' 0' then
    redis.call('HDEL', unique, ARGV[i])
    redis.call('ZREM', checks, ARGV[i])
    freed = freed + 1
  end
end
remember(recent, older, request, freed)
return freed
