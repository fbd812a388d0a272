-- claims/replay: put what was dead-lettered into a queue, as if it were new.
--
-- KEYS  bodies dead reasons facts queue bell delayed recent older finished
-- PLUGS on_revive on_replay
-- ARGV  queue_name  of the queue; '' if there is only one
-- ARGV  request     string, unique to this call
-- ARGV  jobs..      id, envelope, unique name: for each, at most 250; '' for the envelope that it has, and for no name; it
--                   has its name again unless another has it now
-- MOVES    dead: replayed
-- RETURNS  how many were among the dead, and are in the queue
-- TWICE    the same, and nothing is changed, even if they were dead-lettered again in between
-- COST     O(M log N), N dead jobs, M given
-- @include server_time
-- @include recall
-- @include remember
-- @include put_ready
-- @include ring
-- @include revive
local FIELDS = 3  -- arguments of each job

local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- All are read before anything is changed: a key that is not ours stops the script here.
-- @guard queue:list bell:list delayed:zset finished:hash on_replay
local now_ms = math.floor(server_time() / 1000)
local ids = {}
for i = JOBS, #ARGV, FIELDS do
  local id = ARGV[i]
  if redis.call('ZREM', keys.dead, id) == 1 then
    revive(keys, {id = id, envelope = ARGV[i + 1], name = ARGV[i + 2]}, now_ms)
    -- @each on_replay(keys, id)
    ids[#ids + 1] = id
  end
end
if #ids > 0 then
  put_ready(facts, queue, delayed, ids, 'RPUSH')
  ring(bell)
  if queue_name ~= '' then
    redis.call('HSETNX', finished, queue_name, 0)
  end
end
remember(recent, older, request, #ids)
return #ids
