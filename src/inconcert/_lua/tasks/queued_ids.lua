-- tasks/queued_ids: the ids of the jobs of a queue that may run now, the next one first, after one that was listed before.
--
-- KEYS  queue delayed
-- ARGV  position  number, at which the last one was
-- ARGV  last      its id; '' to begin
-- ARGV  limit     number from 1 to 250
-- RETURNS  {first, id, ...}: the position of the first of these, below 0 if it has one of the priorities 0 to 4, and the ids. What
--          stays in the queue is not left out; if the last one left it, or has moved by far, they are those at its front.
-- TWICE    the same, if the queue is the same; nothing is changed
-- COST     O(Q / 400 + limit), Q ids; O(Q / 400 + 3,000) if the last one has moved
local MOST_CLAIMED, MOST_REQUEUED = 2500, 500  -- since then, if it is to be found
local USUAL = -5e14  -- as in rank.lua
local at = last ~= '' and tonumber(redis.call('ZSCORE', delayed, last) or nil)
at = at and at < 0 and at
local ids, first = {}, 0
local function add(others)
  for _, id in ipairs(others) do
    ids[#ids + 1] = id
  end
end

if last == '' or position < 0 then
  at = at or -1e15  -- the last one has gone: those before it may be shown again
  local from = at > -1e15 and string.format('(%.0f', at) or '-inf'
  add(redis.call('ZRANGEBYSCORE', delayed, from, '(-5e14', 'LIMIT', 0, limit))
  first = -#ids
end
if #ids < limit and not (position >= 0 and at and at >= USUAL) then
  local start = 0
  if position >= 0 and last ~= '' and redis.call('LINDEX', queue, position) == last then
    start = position + 1
  elseif position >= 0 and last ~= '' then
    local from = math.max(0, position - MOST_CLAIMED)
    for i, id in ipairs(redis.call('LRANGE', queue, from, position + MOST_REQUEUED)) do
      if id == last then
        start = from + i
        break
      end
    end
  end
  first = #ids > 0 and first or start
  add(redis.call('LRANGE', queue, start, start + limit - #ids - 1))
end
if #ids < limit then
  local from = position >= 0 and at and at >= USUAL and string.format('(%.0f', at) or '-5e14'
  first = #ids > 0 and first or position + 1
  add(redis.call('ZRANGEBYSCORE', delayed, from, '(0', 'LIMIT', 0, limit - #ids))
end
return {first, unpack(ids)}
