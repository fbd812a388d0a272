-- claims/purge: drop what was dead-lettered, the oldest first, at most 500, and fewer if they have many steps.
--
-- KEYS  dead reasons bodies facts recent older
-- @only jobs
-- KEYS  places
-- @end
-- PLUGS on_purge
-- ARGV  age_ms   integer >= 0: only those that were dead-lettered longer ago
-- ARGV  keep     number >= 0: of all dead jobs the latest so many stay
-- ARGV  request  string, unique to this call
-- ARGV  ids..    of those to drop, at most 250; without any, all that are old enough
-- MOVES    dead: purged
-- RETURNS  {dropped, more}: how many were dropped; 1 if others of these may be left
-- @only jobs
--          | {dropped, more, id, queue, ...}: likewise, and those that stop their keys, which are to be let go on first
-- @end
-- TWICE    the same, and nothing is dropped, even if others, or the same again, were dead-lettered in between
-- COST     O(M log N + S), N dead jobs, M dropped, S of their steps and messages: at most 2,000, or those of one job
-- @include server_time
-- @include recall
-- @include remember
-- @only jobs
-- @include within_volume
-- @end
local answer = recall(recent, older, request)
if answer then
  local dropped, more = string.match(answer, '^(%d+) (%d)$')
  return {tonumber(dropped), tonumber(more)}
end
-- @guard on_purge
redis.call('HDEL', recent, request)  -- first: it needs no memory, so a full server lets the rest pass
local until_ms = math.floor(server_time() / 1000) - age_ms
local MOST = 500
local ids, more = {}, 0
if #ARGV < IDS then
  local most = math.max(0, math.min(MOST, redis.call('ZCARD', dead) - keep))
  ids = redis.call('ZRANGEBYSCORE', dead, '-inf', until_ms, 'LIMIT', 0, most)
  more = #ids == MOST and 1 or 0
end
for i = IDS, #ARGV do
  local rank = redis.call('ZREVRANK', dead, ARGV[i])
  local is_old_enough = age_ms == '0' or (rank and tonumber(redis.call('ZSCORE', dead, ARGV[i])) <= until_ms)
  if rank and rank >= keep and is_old_enough then
    ids[#ids + 1] = ARGV[i]
  end
end
-- @only jobs
local stopping = {}
if #ids > 0 and redis.call('EXISTS', places) == 1 then
  local free, fields = {}, {}
  for n, id in ipairs(ids) do
    fields[n] = '=' .. id
  end
  for n, key in ipairs(redis.call('HMGET', places, unpack(fields))) do
    if key then
      stopping[#stopping + 1], more = ids[n], 1
      stopping[#stopping + 1] = string.match(redis.call('HGET', reasons, ids[n]) or '', '\n(.*)$') or ''
    else
      free[#free + 1] = ids[n]
    end
  end
  ids = free
end
local few = within_volume(keys, ids)
if few < #ids then
  ids, more = {unpack(ids, 1, few)}, 1
end
-- @end
local dropped = #ids > 0 and redis.call('ZREM', dead, unpack(ids)) or 0
remember(recent, older, request, dropped .. ' ' .. more)
if dropped > 0 then
  for _, key in ipairs({reasons, bodies, facts}) do
    redis.call('HDEL', key, unpack(ids))
  end
  -- @each on_purge(keys, ids)
end
-- @only jobs
return {dropped, more, unpack(stopping)}
-- @end
-- @only items
return {dropped, more}
-- @end
