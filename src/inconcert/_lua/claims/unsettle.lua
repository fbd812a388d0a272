-- claims/unsettle: requeue jobs, or items, at the front that were acknowledged to be handed out at most once, and never were.
--
-- KEYS  bodies facts queue bell delayed unique checks dead finished recent older results..
--       results: string  of each job, in the same order; none of items
-- ARGV  request     string, unique to this call
-- ARGV  queue_name  of the queue; '' if there is only one
-- ARGV  jobs..      id, body, unique name or '': for each, at most 250, the first one to be claimed last; it has its name again
--                   unless another has it now
-- MOVES    gone: unsettled
-- RETURNS  'N ...': 1 for each that was requeued, 0 for one that is there already
-- TWICE    the same, and nothing is changed
-- COST     O(N), N jobs given
-- @include server_time
-- @include recall
-- @include remember
-- @include store_job
-- @include rank
-- @include ring
-- @include live_job_of_name
-- @include take_name
local FIELDS = 3  -- arguments of each job
local answer = recall(recent, older, request)
if answer then
  return answer
end
-- @guard queue:list bell:list delayed:zset
local now_ms = math.floor(server_time() / 1000)
local requeued, count = {}, 0
for i = JOBS, #ARGV, FIELDS do
  local id, body, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local is_new, priority = store_job(bodies, facts, id, string.match(body, '^(%d* ?)(.*)$'))
  requeued[#requeued + 1] = is_new and 1 or 0
  if is_new then
    if priority then
      rank(delayed, id, priority, 'LPUSH')
    else
      redis.call('LPUSH', queue, id)
    end
    count = count + 1
    if #KEYS >= RESULTS then
      redis.call('DEL', KEYS[RESULTS + (i - JOBS) / FIELDS])
    end
    if name ~= '' and not live_job_of_name(unique, bodies, dead, name, now_ms) then
      take_name(unique, checks, id, name, '0', now_ms)
    end
  end
end
if count > 0 then
  ring(bell)
  if queue_name ~= '' then
    redis.call('HINCRBY', finished, queue_name, -count)
  end
end
answer = table.concat(requeued, ' ')
remember(recent, older, request, answer)
return answer
