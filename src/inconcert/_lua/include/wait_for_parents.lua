-- Lets a new job wait for those of its parents that have not ended, and follow those of other partitions.  It is ready if
-- all have ended, and dead-lettered if one did not end as it must have.  `results` are the keys of the results of the
-- parents in this partition, in their order; {} if what became of these is among the outcomes.
-- @include make_ready
-- @include follow_parent
-- @include put_waiting
-- @include orphaned_because
-- @include dead_letter
-- @include is_here
-- @include lets_run
-- @include record_end
-- @include history_of
local function wait_for_parents(keys, id, parents, results, suffix, even_if, delay_ms, queue_name, now_ms)
  local open, elsewhere, obstacle, here = {}, {}, nil, 0
  for _, parent in ipairs(parents) do
    if not is_here(parent, suffix) then
      open[#open + 1], elsewhere[#elsewhere + 1] = parent, parent
    else
      here = here + 1
      local is_dead = redis.call('ZSCORE', keys.dead, parent)
      if redis.call('HEXISTS', keys.bodies, parent) == 1 and not is_dead then
        open[#open + 1] = parent
        follow_parent(keys, parent, id)
      else
        redis.call('ZADD', keys.children, 0, parent .. ' ' .. id)
        local outcome = redis.call('HGET', keys.outcomes, parent) or results[here] and redis.call('GET', results[here])
        if is_dead then
          outcome = 'failed ' .. (redis.call('HGET', keys.reasons, parent) or '')
        end
        if outcome then
          redis.call('HSET', keys.outcomes, parent, outcome)
        end
        if not lets_run(outcome or '', even_if) then
          obstacle = obstacle or {parent, outcome or ''}
        end
      end
    end
  end
  if obstacle then
    local reason = orphaned_because(obstacle[1], obstacle[2])
    dead_letter(keys, {id = id, reason = reason, queue = queue_name}, now_ms)
    record_end(keys.history, history_of(redis.call('HGET', keys.bodies, id)), id, 'failed ' .. reason, '', 0)
  elseif #open > 0 then
    put_waiting(keys, id, table.concat(open, ' '), even_if, delay_ms, queue_name)
    if #elsewhere > 0 then
      redis.call('HSET', keys.unfollowed, id, table.concat(elsewhere, ' '))
      redis.call('RPUSH', keys.news, id)  -- `resolve_dependents` has them follow it
    end
  else
    make_ready(keys.facts, keys.queue, keys.bell, keys.delayed, keys.states, id, delay_ms, now_ms, queue_name)
  end
end
