-- tasks/open_group: begin a group of jobs, and add the callback that runs when all of them have ended.
--
-- KEYS[1]  groups    hash    group -> what has become of it; see read_group.lua
-- KEYS[2]  bodies    hash    id -> 'enqueued_ms envelope'; permanent until the job has ended
-- KEYS[3]  states    hash    id -> where it is, unless in its queue; permanent until the job has ended
-- KEYS[4]  waiting   hash    queue name -> its jobs that wait for others
-- KEYS[5]  pending   hash    id -> ids of the parents that it still waits for; of a callback its group
-- KEYS[6]  finished  hash    queue name -> jobs that have succeeded or were cancelled; one entry for each queue, permanent
-- ARGV[1]  group     id of the group
-- ARGV[2]  when      the callback runs: 'succeeded' | 'ended' | '-' if there is none
-- ARGV[3]  id        of the callback
-- ARGV[4]  envelope  JSON; '' if there is none
-- ARGV[5]  delay_ms  integer >= 0, from when the group has ended
-- ARGV[6]  name      of its queue
-- RETURNS  1 it is open | 0 it was before
-- TWICE    0, and changes nothing
-- COST     O(1)
-- @include server_time
-- @include count_waiting
local groups, bodies, states, waiting, pending, finished = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local group, when, id, envelope, delay_ms, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
-- All keys are read before anything is changed: a foreign key stops the script here.
for _, key in ipairs({bodies, states, waiting, pending, finished}) do
  redis.call('HLEN', key)
end
if redis.call('HSETNX', groups, group, 'open ' .. when .. ' 0 0 0 0 0') == 0 then
  return 0
end
if envelope ~= '' then
  redis.call('HSET', bodies, id, string.format('%.0f ', math.floor(server_time() / 1000)) .. envelope)
  redis.call('HSET', states, id, 'waiting ' .. delay_ms .. ' ' .. name)
  redis.call('HSET', pending, id, group)
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
  count_waiting(waiting, name, 1)
end
return 1
