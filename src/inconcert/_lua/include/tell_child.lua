-- Tells a job what became of one of its parents.  It is told once: then that parent is not among the pending.
-- Returns its delay and its queue if it may run now; it is dead-lettered if the parent did not end as it must have.
-- @include lets_run
-- @include strike_out
-- @include count_waiting
-- @include fail_dependent
-- @include notify_watchers
-- @include note_end
-- @include record_end
-- @include history_of
local function tell_child(keys, inboxes, now_ms, child, parent, outcome)
  local delay_ms, even_if, name = string.match(redis.call('HGET', keys.states, child) or '', '^waiting (%d+):?(%a*) (.*)$')
  if not delay_ms then
    return nil  -- it was cancelled, or dead-lettered for another parent
  end
  local is_well = lets_run(outcome, even_if)
  local was_pending, left = strike_out(keys.pending, child, parent)
  if was_pending and is_well and left == 0 then
    return delay_ms, name
  elseif was_pending and not is_well then
    for _, key in ipairs({keys.states, keys.pending, keys.unfollowed}) do
      redis.call('HDEL', key, child)
    end
    count_waiting(keys.waiting, name, -1)
    local reason = fail_dependent(keys.dead, keys.reasons, child, now_ms, parent, outcome, name)
    notify_watchers(keys.watchers, inboxes, child)
    record_end(keys.history, history_of(redis.call('HGET', keys.bodies, child)), child, 'failed ' .. reason, '', 0)
    note_end(keys, child, 'failed ' .. reason)
  end
  return nil
end
