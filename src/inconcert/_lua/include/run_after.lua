-- Lets a new job run after one of this partition, which has not ended.
-- @include follow_parent
-- @include put_waiting
local function run_after(keys, parent, id, even_if, delay_ms, queue_name)
  redis.call('HSET', keys.parents, id, parent)
  follow_parent(keys, parent, id)
  put_waiting(keys, id, parent, even_if, delay_ms, queue_name)
end
