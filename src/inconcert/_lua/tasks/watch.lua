-- tasks/watch: a job's state, and a subscription to its end.
--
-- KEYS[1]  bodies    hash    id -> 'enqueued_ms envelope'
-- KEYS[2]  states    hash    id -> where it is, unless in its queue
-- KEYS[3]  dead      zset    id -> when it was dead-lettered, server ms
-- KEYS[4]  reasons   hash    id -> why it was dead-lettered, JSON, newline, name of its queue
-- KEYS[5]  progress  hash    id -> 'NUMBER JSON': its progress
-- KEYS[6]  watchers  zset    'id address': processes that wait for its end
-- KEYS[7]  result    string  'succeeded JSON' | 'cancelled '
-- ARGV[1]  id        string
-- ARGV[2]  address   'session.number' at which a process waits for its end, or ''
-- RETURNS  {status, about, progress}: 'succeeded' and its result as JSON, 'failed' and the reason, 'delayed' or 'waiting'
--          for others and the name of its queue, 'running', 'queued', 'cancelled' or 'unknown' and ''; and the progress that
--          it last reported, JSON, if no process is to wait for its end, or ''
-- TWICE    the same
-- COST     O(log W), W processes that wait for a job
-- @include if_small
local bodies, states, dead, reasons, progress, watchers, result =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local id, address = ARGV[1], ARGV[2]
local ended = redis.call('GET', result)
if ended then
  local status, about = string.match(ended, '^(%S+) (.*)$')
  return if_small({status, about, ''}, #ended)
elseif redis.call('ZSCORE', dead, id) then
  local reason = redis.call('HGET', reasons, id) or ''
  return if_small({'failed', reason, ''}, #reason)
elseif redis.call('HEXISTS', bodies, id) == 0 then
  return {'unknown', '', ''}
end
if address ~= '' then
  redis.call('PEXPIRE', watchers, 180000)  -- first: needs no memory, so a full server accepts the rest
  redis.call('ZADD', watchers, 0, id .. ' ' .. address)
  redis.call('PEXPIRE', watchers, 180000)  -- again, if it is new; waiters re-check before that
end
local state, about = string.match(redis.call('HGET', states, id) or 'queued ', '^(%S+) (.*)$')
if state == 'waiting' then
  about = string.match(about, '^%S+ (.*)$')
elseif state ~= 'delayed' then
  state, about = about == '' and 'queued' or 'running', ''
end
local how_far = address == '' and string.match(redis.call('HGET', progress, id) or '', '^%d+ (.*)$') or ''
return if_small({state, about, how_far}, #how_far)
