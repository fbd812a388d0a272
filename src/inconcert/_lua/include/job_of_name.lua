-- The id of the job that has a unique name, or nil; and what is known of it, nil if it has ended and its window goes on: of its
-- body its `task` and `lines`, see task_and_lines.lua, `put_ms` and `first_ms`, see head_of.lua; its `flags`; whether it
-- `has_begun`, `is_running`, or `is_behind` one that it replaces; whether it waits in its queue (`is_queued`), or `delayed_in` which
-- one; and whether it `is_due`, there or there.  `delayed` is of the queue in which it is delayed, if the caller knows that.
-- @include live_job_of_name
-- @include head_of
-- @include task_and_lines
-- @include read_facts
-- @include in_line
local function job_of_name(keys, delayed, name, now_ms)
  local id = live_job_of_name(keys.unique, keys.bodies, keys.dead, name, now_ms)
  local body = id and not redis.call('ZSCORE', keys.dead, id) and redis.call('HGET', keys.bodies, id)
  if not body then
    return id
  end
  local put_ms, _, limits, _, first_ms = head_of(body)
  local task, lines = task_and_lines(string.match(body, '^%d+ (.*)$') or '')
  local state, about = string.match(redis.call('HGET', keys.states, id) or '', '^(%S+) (.*)$')
  local known = read_facts(redis.call('HGET', keys.facts, id))
  return id, {
    task = task, lines = lines, put_ms = put_ms, first_ms = first_ms, flags = known.flags,
    has_begun = known.failures + known.crashes + redis.call('HEXISTS', keys.stepped, id) > 0,
    is_running = (state == 'running' or state == 'cancelling') and about ~= '',
    is_behind = state == 'waiting' and string.match(about, '^%d+:replaces ') ~= nil,
    is_queued = not state, delayed_in = state == 'delayed' and about or nil,
    is_due = not state or state == 'delayed' and in_line(keys.places, delayed, id, limits or ''),
  }
end
