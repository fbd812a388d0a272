-- queues/ack: items are done.
--
-- KEYS  bodies claimed facts workers
--       claimed: hash, of this worker
-- PLUGS on_end
-- ARGV  inboxes  what the channel of each session's inbox begins with
-- ARGV  worker   string
-- ARGV  items..  id, position: for each item, at most 500 of them
-- MOVES    claimed: done
-- RETURNS  {1 or 0, ...}: for each item whether the worker held it at this position
-- TWICE    0 for each: it is done already
-- COST     O(N), N items given
local all, answer, held, failed = {}, {}, {}, {}
for i = ITEMS, #ARGV, 2 do
  all[#all + 1] = ARGV[i]
end
for n, claim in ipairs(redis.call('HMGET', claimed, unpack(all))) do
  local position, attempt = string.match(claim or '', '^(%d+) (%d+)')
  local is_held = position == ARGV[ITEMS + 2 * n - 1]
  answer[n] = is_held and 1 or 0
  held[#held + 1] = is_held and all[n] or nil
  failed[#failed + 1] = is_held and attempt ~= '1' and all[n] or nil  -- or its worker died: only of such there are facts
end
if #held == 0 then
  return answer
end
redis.call('HDEL', claimed, unpack(held))  -- first: it frees memory
redis.call('HDEL', bodies, unpack(held))
if #failed > 0 then
  redis.call('HDEL', facts, unpack(failed))
end
-- @include fall_idle
fall_idle(workers, claimed, worker)
-- @each on_end(keys, held, inboxes)
return answer
