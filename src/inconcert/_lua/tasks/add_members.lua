-- tasks/add_members: add jobs to an open group, numbered one after the other.
--
-- KEYS  groups bodies facts states unique checks dead finished parents waiting pending unfollowed news recent older queues..
--       queues: list, then its bell (list) and delayed (zset), for each queue, in the order in which the jobs name them
-- ARGV  group     id of the group
-- ARGV  request   string, unique to this call
-- ARGV  first     number >= 0, number of the first job
-- ARGV  may_skip  flag, 1: those with numbers that were given before are passed over | 0: then none is added
-- ARGV  jobs..    id, envelope, delay_ms, queue name, unique name or '', window_ms, ids it runs after or '', even_if:
--                 for each, at most 500; even_if as for `enqueue_after`
-- MOVES    new: enqueued put_off put_after
-- RETURNS  {answer, given, total, added...}: 1 they are members | 0 the group is not open | -1 there is no such group | 2 the
--          next number is not the first; then the next number and how many members there are; then for each job 1 if it was
--          added, 0 if it was passed over or another live job has its unique name
-- TWICE    the same, and adds nothing; after the first minute 2, or 1 if it may skip them
-- COST     O(N log D), N jobs given, D delayed jobs of their queues
-- @include server_time
-- @include recall
-- @include remember
-- @include store_job
-- @include put_ready
-- @include ring
-- @include delay_job
-- @include live_job_of_name
-- @include take_name
-- @include drop_names
-- @include count_waiting
-- @include read_group
-- @include write_group
local PARTS, FIELDS = 3, 8  -- keys of each queue, and arguments of each job

local answer = {}
local answered = recall(recent, older, request)
if answered then
  for part in string.gmatch(answered, '%S+') do
    answer[#answer + 1] = tonumber(part)
  end
  return answer
end
local known = read_group(groups, group)
if not known then
  return {-1, 0, 0}
end
local count = (#ARGV - JOBS + 1) / FIELDS
local are_there = may_skip and first + count <= known.given
if known.state ~= 'open' and not are_there then
  return {0, known.given, known.total}
end
if first > known.given or (first < known.given and not may_skip) then
  return {2, known.given, known.total}
end

-- All are read before anything is changed: a foreign key stops the script here.
for i = QUEUES, #KEYS, PARTS do
  redis.call('LLEN', KEYS[i])
  redis.call('LLEN', KEYS[i + 1])
  redis.call('ZCARD', KEYS[i + 2])
end
for _, key in ipairs({bodies, facts, states, unique, finished, parents, waiting, pending, unfollowed}) do
  -- @guard key:hash
end
-- @guard news:list
local now_ms = math.floor(server_time() / 1000)
local enqueued = string.format('%.0f ', now_ms)
local first_keys, ready, last, names, added = {}, {}, QUEUES, 0, {}
for i = JOBS, #ARGV, FIELDS do
  local id, envelope, delay_ms, queue_name, name, window_ms, after, even_if = unpack(ARGV, i, i + FIELDS - 1)
  if not first_keys[queue_name] then
    first_keys[queue_name], ready[queue_name], last = last, {}, last + PARTS
    redis.call('HSETNX', finished, queue_name, 0)  -- the names of all queues are there
  end
  local is_new = first + (i - JOBS) / FIELDS >= known.given
    and not (name ~= '' and live_job_of_name(unique, bodies, dead, name, now_ms))
  added[#added + 1] = is_new and 1 or 0
  if is_new then
    store_job(bodies, facts, id, enqueued, envelope)
    known.total = known.total + 1
    if name ~= '' then
      take_name(unique, checks, id, name, window_ms, now_ms)
      names = names + 1
    end
    if after ~= '' then
      redis.call('HSET', parents, id, after)
      redis.call('HSET', pending, id, after)
      redis.call('HSET', unfollowed, id, after)
      local rule = even_if ~= '' and ':' .. even_if or ''
      redis.call('HSET', states, id, 'waiting ' .. delay_ms .. rule .. ' ' .. queue_name)
      count_waiting(waiting, queue_name, 1)
      redis.call('RPUSH', news, id)  -- `resolve_dependents` has its parents know of it
    elseif delay_ms == '0' then
      table.insert(ready[queue_name], id)
    else
      local key = first_keys[queue_name]
      delay_job(KEYS[key + 2], KEYS[key + 1], states, id, now_ms + delay_ms, queue_name)
    end
  end
end
for queue_name, ids in pairs(ready) do
  if #ids > 0 then
    local key = first_keys[queue_name]
    put_ready(facts, KEYS[key], KEYS[key + 2], ids, 'RPUSH')
    ring(KEYS[key + 1])
  end
end
if first + count > known.given then
  known.given = first + count
  write_group({groups = groups}, group, known)
end
answer = {1, known.given, known.total, unpack(added)}
remember(recent, older, request, table.concat(answer, ' '))
if names > 0 then
  drop_names(unique, checks, bodies, dead, now_ms, names + 10)  -- more than were added, so that they do not accumulate
end
return answer
