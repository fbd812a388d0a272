-- claims/promote: move what is due to its queue, the earliest first, at most 100; and what has expired while a limit or a rate
-- holds it back, of the first 250 in their lines, and as many that are delayed: whoever claims it ends it.
--
-- KEYS  delayed queue bell states bodies facts places held_back
-- ARGV  front  1 to the front of the queue, the last that was due before the others | 0 to its back
-- MOVES    delayed: due admitted
-- RETURNS  {moved, next_ms}: milliseconds until the next is due, or expires, 0 for at once, -1 if there is none
-- TWICE    moves what is due by then, once each
-- COST     O(log N + M), N delayed jobs, M moved
-- @include server_time
-- @include put_ready
-- @include ring
-- @include head_of
-- @include leave_lines
-- @include replace_next
local MOST = 250

local now_ms = math.floor(server_time() / 1000)
local due = redis.call('ZRANGEBYSCORE', delayed, 0, now_ms, 'LIMIT', 0, 100)
if #due > 0 then
  -- Both are read before anything is changed: a key that is not ours stops the script here.
  -- @guard queue:list bell:list
  redis.call('ZREM', delayed, unpack(due))
  redis.call('HDEL', states, unpack(due))
  put_ready(facts, queue, delayed, due, front == '1' and 'LPUSH' or 'RPUSH')
  ring(bell)
end

local expired, limits, expires_at = {}, {}, nil
-- @guard held_back:zset
local held = {}
if redis.call('HLEN', places) > 0 then
  -- In the lines, as hold_back.lua has them; and delayed, such as the next of a rate.
  for _, between in ipairs({{'45e14', '(5e15'}, {'55e14', '+inf'}, {now_ms, '(4e15'}}) do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', delayed, between[1], between[2], 'LIMIT', 0, MOST)) do
      held[#held + 1] = id
    end
  end
end
for n, text in ipairs(#held > 0 and redis.call('HMGET', bodies, unpack(held)) or {}) do
  local put_ms, _, its_limits = head_of(text)
  local expires_ms = string.match(its_limits or '', '^[^og]*/e(%d+)$')  -- not of a key in strict order: it ends in its turn
  local at_ms = expires_ms and put_ms + expires_ms + 2  -- as in take_places.lua
  if at_ms and at_ms <= now_ms then
    expired[#expired + 1] = held[n]
  elseif at_ms then
    expires_at = math.min(at_ms, expires_at or at_ms)
  end
end
if #expired > 0 then
  -- @guard queue:list bell:list
  for _, id in ipairs(expired) do
    limits[id] = leave_lines(held_back, delayed, bodies, id)
  end
  redis.call('ZREM', delayed, unpack(expired))
  redis.call('HDEL', states, unpack(expired))
  redis.call('LPUSH', queue, unpack(expired))
  replace_next(places, held_back, states, {queue, bell, delayed, facts = facts}, limits)
  ring(bell)
end
local next_due = redis.call('ZRANGEBYSCORE', delayed, 0, '(4e15', 'WITHSCORES', 'LIMIT', 0, 1)[2]
next_due = tonumber(next_due) or expires_at
next_due = next_due and math.min(next_due, expires_at or next_due)
return {#due + #expired, next_due and math.max(0, next_due - now_ms) or -1}
