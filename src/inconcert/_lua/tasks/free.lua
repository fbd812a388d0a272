-- tasks/free: jobs have started, and let others have their unique names.
--
-- KEYS[1]    unique  hash  unique name -> id of the job that has it, and when its window ends, or 0
-- KEYS[2]    checks  zset  unique name -> when to look whether it is still taken, server ms
-- ARGV[1..]  name, id: for each job
-- RETURNS    how many names were freed
-- TWICE      0: they are free, or another's
-- COST       O(N log U), N jobs given, U names taken
local unique, checks = KEYS[1], KEYS[2]
local freed = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', unique, ARGV[i]) == ARGV[i + 1] .. ' 0' then
    redis.call('HDEL', unique, ARGV[i])
    redis.call('ZREM', checks, ARGV[i])
    freed = freed + 1
  end
end
return freed
