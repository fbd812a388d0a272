-- tasks/locate: where a job is that does not run yet, among some queues.
--
-- KEYS  pending paused undo unknown queues..
--       queues: list, then its delayed (zset), for each queue
-- ARGV  id       of the job
-- ARGV  names..  of each queue, in the same order
-- RETURNS  {now_ms, pending, undo, name, ahead, due_ms, is_paused, unknown_ms}: what it waits for, or ''; what is
--          noted of undoing it, or ''; the name of the queue that it is in,
--          or '' if it is in none of these; how many are before it there, or when it is due, each -1 if not so;
--          and since when workers cannot run it, or -1
-- TWICE    the same; nothing is changed
-- COST     O(N), N jobs in these queues
-- @include server_time
local PARTS = 2  -- keys of each queue

local name, ahead, due_ms = '', -1, -1
for i = NAMES, #ARGV do
  local at = QUEUES + PARTS * (i - 2)
  local index, due = redis.call('LPOS', KEYS[at], id), redis.call('ZSCORE', KEYS[at + 1], id)
  if index or due then
    name, ahead, due_ms = ARGV[i], index or -1, tonumber(due or -1)
    local first = redis.call('ZCOUNT', KEYS[at + 1], '-inf', '(-5e14')  -- of the priorities before the usual one, as in rank.lua
    if index then
      ahead = index + first
    elseif due_ms < 0 then
      ahead, due_ms = redis.call('ZRANK', KEYS[at + 1], id), -1
      ahead = ahead + (ahead >= first and redis.call('LLEN', KEYS[at]) or 0)
    end
    break
  end
end
local is_paused = name ~= '' and redis.call('SISMEMBER', paused, name) or 0
return {
  math.floor(server_time() / 1000), redis.call('HGET', pending, id) or '', redis.call('HGET', undo, id) or '', name, ahead,
  due_ms, is_paused, tonumber(redis.call('ZSCORE', unknown, id) or -1),
}
