-- sessions/guard: how long this server has been the master, as the first coordinator to connect to it has noted.
--
-- A promoted or restarted server has another replication id than the one before it, and may lack its last grants.
--
-- KEYS  master
-- RETURNS  milliseconds for which it has been the master, at least
-- TWICE    the same, counted to the second run
-- COST     O(1); the server writes two sections of INFO
-- @include server_time
local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local seen = redis.call('HMGET', master, 'id', 'since_ms')
local now_ms = math.floor(server_time() / 1000)
local since_ms = tonumber(seen[2])
if seen[1] ~= id then
  since_ms = now_ms
  -- Nothing is noted, and it was always the master: then nothing has been lost since it started.
  local was_replica = string.match(redis.call('INFO', 'replication'), 'master_replid2:0*[1-9a-f]')
  if not seen[1] and not was_replica then
    -- Its age is a difference of whole seconds, so up to one second too much.
    local seconds = string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
    since_ms = now_ms - 1000 * math.max(0, seconds - 1)
  end
  redis.call('HSET', master, 'id', id, 'since_ms', string.format('%.0f', since_ms))
end
redis.call('PEXPIRE', master, 2592000000)
return math.max(0, now_ms - since_ms)
