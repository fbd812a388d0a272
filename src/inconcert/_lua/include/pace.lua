-- Lets the jobs in line for a rate begin in time: those that may begin now come to the front of their queue; if none may, the
-- first is due when it may, unless another is before: that is due then, if it was to come later.  For `queues` see
-- admit_first.lua.  Returns how many came.
-- @include admit_first
-- @include put_ready
-- @include ring
local function pace(places, held_back, states, queues, rate, now_us)
  local MOST, PARTS = 100, 3
  local limit = rate.limit
  local room = math.floor((now_us + rate.burst_us - rate.used_us) / rate.interval_us)
  local may_begin_ms = math.ceil((rate.used_us + rate.interval_us - rate.burst_us) / 1000)
  local due_ms = math.max(may_begin_ms, math.floor(now_us / 1000) + 1)
  local came = room > 0 and #admit_first(held_back, states, queues, limit, math.min(room, MOST)) or 0
  local is_next_there = room > 0
  for i = 1, #queues, PARTS do
    local due = tonumber(redis.call('ZSCORE', queues[i + 2], rate.next_id) or nil)
    if due == rate.due_ms and due_ms < due then  -- the rate was raised, or the clock set back
      if room > 0 then
        redis.call('ZREM', queues[i + 2], rate.next_id)
        redis.call('HDEL', states, rate.next_id)
        put_ready(queues.facts, queues[i], queues[i + 2], {rate.next_id}, 'LPUSH')  -- in front of those that came
        came, rate.due_ms = came + 1, 0
      else
        redis.call('ZADD', queues[i + 2], string.format('%.0f', due_ms), rate.next_id)
        due, rate.due_ms = due_ms, due_ms
      end
      if queues[i + 1] then
        ring(queues[i + 1])
      end
    end
    is_next_there = is_next_there or due and due <= rate.due_ms
  end
  local first = not is_next_there and redis.call('ZRANGEBYLEX', held_back, '[' .. limit .. ' ', '(' .. limit .. '!', 'LIMIT', 0, 1)[1]
  for i = 1, first and #queues or 0, PARTS do
    local id = string.match(first, '^%x+ %d+ (.*)$')
    if redis.call('ZADD', queues[i + 2], 'XX', 'CH', string.format('%.0f', due_ms), id) == 1 then
      redis.call('ZREM', held_back, first)
      rate.due_ms, rate.next_id = due_ms, id
      if queues[i + 1] then
        ring(queues[i + 1])
      end
    end
  end
  redis.call('HSET', places, limit, string.format('%.0f %.0f %.0f %.0f %.0f %.0f %s', rate.used_us, rate.due_ms,
    rate.interval_us, rate.burst_us, rate.at_ms, rate.debt_us, rate.next_id))
  if rate.is_of_key and rate.is_new then  -- drop_rates looks at it then
    redis.call('ZADD', held_back, 0, string.format('~%014.0f %s', math.ceil(rate.debt_us / 1000) + 1, limit))
  end
  return came
end
