-- Gives a job that has not begun another envelope.  One that is due keeps its turn, in its queue or in the line of a limit; another
-- one is due after this delay, in this queue.  `its` has the list, bell and delayed of the queue in which it is, `queues` of this one.
-- @include leave_lines
-- @include rewrite_job
-- @include make_ready
-- @include replace_next
local function keep_turn(keys, id, job, its, envelope, queues, delay_ms, now_ms, queue_name)
  local _, _, delayed = unpack(its)
  local limits = not job.is_due and leave_lines(keys.held_back, delayed, keys.bodies, id)
  rewrite_job(keys.bodies, keys.facts, id, string.format('%.0f ', now_ms), envelope)
  if limits then
    local queue, bell, delayed_there = unpack(queues)
    redis.call('ZREM', delayed, id)
    make_ready(keys.facts, queue, bell, delayed_there, keys.states, id, delay_ms, now_ms, queue_name)
    replace_next(keys.places, keys.held_back, keys.states, its, {[id] = limits})
  end
end
