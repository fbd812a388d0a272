-- tasks/watch: a job's state, and a subscription to its end.
--
-- KEYS  bodies states dead reasons progress watchers facts result
--       result: string  'succeeded JSON' | 'cancelled '
-- ARGV  id       string
-- ARGV  address  'session.number' at which a process waits for its end, or ''
-- RETURNS  {status, about, progress}: 'succeeded' and its result as JSON, 'failed' and the reason, 'delayed' or 'waiting'
--          for others and the name of its queue, 'running', 'queued', 'cancelled' or 'unknown' and ''; and the progress that
--          it last reported, JSON, if no process is to wait for its end, or ''
-- TWICE    the same
-- COST     O(log W), W processes that wait for a job
-- @include if_small
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
  -- @block flag
  redis.call('PEXPIRE', watchers, 180000)  -- first: needs no memory, so a full server accepts the rest
  redis.call('ZADD', watchers, 0, id .. ' ' .. address)
  flag(facts, id, 'w')
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
