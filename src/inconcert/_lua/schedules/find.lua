-- schedules/find: a schedule, and when a worker followed it last.
--
-- KEYS  schedules definitions declared paused_schedules looked
-- ARGV  id  string
-- RETURNS  {id, 'SINCE LAST[,BEFORE] RULE', signed JSON, is_in_code, is_paused, now_ms, followed_ms}: the first five as of
--          schedules/list; the server's clock; when a worker followed it, or looked at all, last, or 0 | nil there is none
-- TWICE    the same
-- COST     O(1)
-- @include server_time
-- @include if_small
local state = redis.call('HGET', schedules, id)
if not state then
  return false
end
local declared_ms = redis.call('ZSCORE', declared, id)
local followed_ms = tonumber(declared_ms or redis.call('GET', looked) or '0')
local definition, is_paused = redis.call('HGET', definitions, id) or '', redis.call('SISMEMBER', paused_schedules, id)
return if_small(
  {id, state, definition, declared_ms and 1 or 0, is_paused, math.floor(server_time() / 1000), followed_ms}, #definition)
