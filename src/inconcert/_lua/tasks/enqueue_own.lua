-- tasks/enqueue_own: add a job whose id its caller has chosen, unless there is one, or its result is kept.
--
-- KEYS  bodies facts queue bell delayed states outcomes places recent older finished result stream items
--       result: string  of a job of this id
--       stream: hash  of that job
--       items: list  of that job
-- ARGV  queue_name  of the queue
-- ARGV  request     string, unique to this call
-- ARGV  id          of the job
-- ARGV  envelope    JSON, with what scripts read of it
-- ARGV  delay_ms    integer >= 0
-- MOVES    new: enqueued put_off
-- RETURNS  {''} it was added | {id} there is one of this id, or what is kept of it
-- TWICE    the same, and adds nothing; after the first minute, as long as the job or its result is there
-- COST     O(log D), D delayed jobs of the queue
-- @include server_time
-- @include recall
-- @include remember
-- @include store_job
-- @include make_ready
local answer = recall(recent, older, request)
if answer then
  return {answer}
end
-- All are read before anything is changed: a foreign key stops the script here.
-- @guard queue:list bell:list delayed:zset facts:hash states:hash finished:hash
local is_here = redis.call('HEXISTS', bodies, id) + redis.call('EXISTS', result) > 0
-- Jobs that run after the last one of this id have not ended; or that one was cancelled, and a claim is to come to its place.
is_here = is_here or redis.call('HEXISTS', outcomes, id) + redis.call('HEXISTS', places, id) > 0
answer = is_here and id or ''
if not is_here then
  local now_ms = math.floor(server_time() / 1000)
  store_job(bodies, facts, id, string.format('%.0f ', now_ms), envelope)
  redis.call('DEL', stream, items)  -- of the last one
  redis.call('HSETNX', finished, queue_name, 0)  -- the names of all queues are there
  make_ready(facts, queue, bell, delayed, states, id, delay_ms, now_ms, queue_name)
end
remember(recent, older, request, answer)
return {answer}
