-- Tells a job what became of one of its parents.  It is told once: then that parent is not among the pending.
-- Returns its delay and its queue if it may run now; it is dead-lettered if the parent did not end as it must have.
-- @include lets_run
-- @include strike_out
-- @include count_waiting
-- @include orphaned_because
-- @include bury
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
    redis.call('HDEL', keys.pending, child)
    redis.call('HDEL', keys.unfollowed, child)
    count_waiting(keys.waiting, name, -1)
    local job = {id = child, reason = orphaned_because(parent, outcome), queue = name, attempts = 0, began_ms = ''}
    bury(keys, {job}, now_ms, inboxes)
  end
  return nil
end
