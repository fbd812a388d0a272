-- claims/unsettle: requeue jobs, or items, at the front that were acknowledged to be handed out at most once, and never were.
--
-- KEYS[1]    bodies    hash    id -> 'put_ms text'
-- KEYS[2]    queue     list    ids, the next one first
-- KEYS[3]    bell      list    at most one token
-- KEYS[4]    unique    hash    unique name -> id of the job that has it, and when its window ends, or 0
-- KEYS[5]    checks    zset    unique name -> when to look whether it is still taken, server ms
-- KEYS[6]    dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[7]    finished  hash    queue name -> how many have succeeded or were cancelled
-- KEYS[8]    recent    hash    request -> its answer, 120 s
-- KEYS[9]    older     hash    the same, from before; at most 120 s
-- KEYS[10..] results   string  of each job, in the same order; none of items
-- ARGV[1]    request   string, unique to this call
-- ARGV[2]    queue_name  of the queue; '' if there is only one
-- ARGV[3..]  jobs      id, body, unique name or '': for each, at most 250, the first one to be claimed last; it has its name again
--            unless another has it now
-- RETURNS    'N ...': 1 for each that was requeued, 0 for one that is there already
-- TWICE      the same, and nothing is changed
-- COST       O(N), N jobs given
-- @include server_time
-- @include recall
-- @include remember
-- @include ring
-- @include live_job_of_name
-- @include take_name
local FIRST_RESULT, FIRST_JOB, FIELDS = 10, 3, 3  -- KEYS of the results; ARGV of the jobs, and how many each has
local bodies, queue, bell, unique, checks, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local finished, recent, older = KEYS[7], KEYS[8], KEYS[9]
local request, queue_name = ARGV[1], ARGV[2]
local answer = recall(recent, older, request)
if answer then
  return answer
end
redis.call('LLEN', queue)  -- a foreign key stops the script before it changes anything
redis.call('LLEN', bell)
local now_ms = math.floor(server_time() / 1000)
local requeued, count = {}, 0
for i = FIRST_JOB, #ARGV, FIELDS do
  local id, body, name = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local is_new = redis.call('HSETNX', bodies, id, body)
  requeued[#requeued + 1] = is_new
  if is_new == 1 then
    redis.call('LPUSH', queue, id)
    count = count + 1
    if #KEYS >= FIRST_RESULT then
      redis.call('DEL', KEYS[FIRST_RESULT + (i - FIRST_JOB) / FIELDS])
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
