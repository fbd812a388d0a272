-- tasks/add_counts: add what a worker has counted of jobs that ended, and note which these were.
--
-- KEYS  counted lately counts_seen counts_seen_before days..
--       days: hash of each of these tasks on a day
-- ARGV  request  string, unique to this call
-- ARGV  lately_ended  entries of jobs, a line each, the latest last, at most 200
-- ARGV  tasks..  name, day since 1970, 'FIELD HOUR_OR_BOUND NUMBER,' of each count: for each key
-- RETURNS  1
-- TWICE    1, and nothing is changed; it counts once more if 10,000 others were counted in between, or two minutes went by
-- COST     O(N), N counts
-- @include recall
-- @include remember
local KEPT_MS, LATELY_MS = 15 * 86400000, 86400000
local MOST_TASKS, MOST_LATELY = 1000, 200

if recall(counts_seen, counts_seen_before, request) then
  return 1
end
remember(counts_seen, counts_seen_before, request, 1)
for i = TASKS, #ARGV, 3 do
  local name, day, counts = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('ZSCORE', counted, name) or redis.call('ZCARD', counted) < MOST_TASKS then  -- names may come from anywhere
    redis.call('ZADD', counted, 'GT', day, name)
    local key = KEYS[DAYS + (i - TASKS) / 3]
    for field, number in string.gmatch(counts, '(%l+ %d+) (%d+),') do
      redis.call('HINCRBY', key, field, number)
    end
    redis.call('PEXPIRE', key, KEPT_MS)
    redis.call('ZREMRANGEBYSCORE', counted, '-inf', '(' .. day - 14)
  end
end
redis.call('PEXPIRE', counted, KEPT_MS)
for entry in string.gmatch(lately_ended, '[^\n]+') do
  redis.call('LPUSH', lately, entry)
end
redis.call('LTRIM', lately, 0, MOST_LATELY - 1)
redis.call('PEXPIRE', lately, LATELY_MS)
return 1
