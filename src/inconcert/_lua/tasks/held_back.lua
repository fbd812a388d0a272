-- tasks/held_back: which limit, rate or turn holds a delayed job back, how far that is used, and which jobs have a place in it.
--
-- KEYS  bodies places held_back delayed
-- ARGV  id         of the job
-- ARGV  running..  ids of jobs that may have a place in it, at most 500
-- RETURNS  {limits, line, ahead, in_use, most, turn, id, ...}: its limits; in which line it is, or of which rate it is the
--          next; how many are before it; how many jobs have a place, of how many, or of a rate 0 and its INTERVAL_US; which has
--          the turn, or ''; and those of `running` that have a place | {} nothing holds it back.  Of a line from which tasks/let_in
--          takes jobs: `ahead` in all lines for the same, and the places of its limit, of none 0 of 0
-- TWICE    the same; nothing is changed
-- COST     O(log N + M), N jobs in line, M ids
-- @include head_of
-- @include parse_limits
-- @include read_waits
local due_ms = redis.call('ZSCORE', delayed, id)
local _, _, limits = head_of(redis.call('HGET', bodies, id))
if not due_ms or not limits then
  return {}
end
local wait = parse_limits({}, limits).wait
for line in string.gmatch(limits, ':(%x+)') do
  local is_wait = wait and wait.line == line
  local entry = string.format('%s %014.0f %s', line, due_ms % 1e15, id)  -- as hold_back.lua has written it
  local state = redis.call('HGET', places, is_wait and wait.limit or line) or ''
  local in_use, most = string.match(state, '^(%d+) (%d+) %d+$')  -- of a limit
  local next_ms, interval_us, next_id = string.match(state, '^%d+ (%d+) (%d+) %d+ %d+ %d+ (.*)$')  -- of a rate
  local is_next = next_id == id and tonumber(next_ms) == tonumber(due_ms)
  if is_next or redis.call('ZSCORE', held_back, entry) then
    local ahead = is_next and 0 or redis.call('ZLEXCOUNT', held_back, '[' .. line .. ' ', '(' .. entry)
    if next_ms and not is_next and tonumber(redis.call('ZSCORE', delayed, next_id) or nil) == tonumber(next_ms) then
      ahead = ahead + 1  -- the next of a rate has left the line
    end
    for _, each in ipairs(is_wait and read_waits({places = places, now_us = 0}) or {}) do
      local is_same = each.limit == wait.limit and wait.limit ~= '-' or each.of_rate == wait.of_rate and wait.of_rate ~= '-'
      if is_same and each.line ~= line then
        local before = string.format('(%s %014.0f ', each.line, due_ms % 1e15)
        ahead = ahead + redis.call('ZLEXCOUNT', held_back, '[' .. each.line .. ' ', before)
      end
    end
    local turn = redis.call('HGET', places, '@' .. line) or ''
    local answer = {limits, line, ahead, tonumber(in_use) or 0, tonumber(most or interval_us) or 0, turn}
    local its, running = is_wait and '.' .. wait.limit .. ':' or ':' .. line, {unpack(ARGV, RUNNING)}
    for n, taken in ipairs(#running > 0 and redis.call('HMGET', places, unpack(running)) or {}) do
      if taken and string.find(string.gsub(taken, ',', ':'), its, 1, true) then
        answer[#answer + 1] = running[n]
      end
    end
    return answer
  end
end
return {}
