-- Delays jobs of one queue without end, and puts each in a line: `held` has their `id`, the `limit` for which they wait or the
-- key whose turn, the `order` in which they do, ms, whether they are ready but for that, and whether they may expire there.
local function hold_back(held_back, delayed, states, queue_name, held)
  local HELD_BACK_MS, TURN_MS, EXPIRES_MS = 4e15, 5e15, 5e14  -- after every time at which something may be due
  local due, where, lines = {}, {}, {}
  for n, each in ipairs(held) do
    local base = (each.is_ready and TURN_MS or HELD_BACK_MS) + (each.expires and EXPIRES_MS or 0)
    due[2 * n - 1], due[2 * n] = string.format('%.0f', base + each.order), each.id
    where[2 * n - 1], where[2 * n] = each.id, 'delayed ' .. queue_name
    lines[2 * n - 1], lines[2 * n] = 0, string.format('%s %014.0f %s', each.limit, each.order, each.id)
  end
  redis.call('ZADD', delayed, unpack(due))
  redis.call('HSET', states, unpack(where))
  redis.call('ZADD', held_back, unpack(lines))
end
