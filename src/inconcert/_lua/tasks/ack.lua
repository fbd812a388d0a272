-- tasks/ack: jobs are done.
--
-- KEYS[1]    bodies    hash    id -> envelope
-- KEYS[2]    claimed   hash    id -> 'attempt place queue-name'; of this worker
-- KEYS[3]    failures  hash    id -> attempts that failed
-- KEYS[4]    crashes   hash    id -> workers that died with it
-- ARGV[1..]  id, attempt, for each job, at most 500 of them
-- RETURNS    {1 or 0, ...}: for each job whether the worker held it at this attempt
-- TWICE      0 for each: it is done already
-- COST       O(N), N jobs given
local bodies, claimed, failures, crashes = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local done, answer = {}, {}
for i = 1, #ARGV, 2 do
  local claim = redis.call('HGET', claimed, ARGV[i])
  local is_held = claim and string.match(claim, '^%d+') == ARGV[i + 1]
  answer[#answer + 1] = is_held and 1 or 0
  if is_held then
    done[#done + 1] = ARGV[i]
  end
end
if #done > 0 then
  redis.call('HDEL', claimed, unpack(done))
  redis.call('HDEL', bodies, unpack(done))
  redis.call('HDEL', failures, unpack(done))
  redis.call('HDEL', crashes, unpack(done))
end
return answer
