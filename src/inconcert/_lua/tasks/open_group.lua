-- tasks/open_group: begin a group of jobs, and add the callback that runs when all of them have ended.
--
-- KEYS  groups bodies facts states waiting pending finished
-- ARGV  group     id of the group
-- ARGV  when      the callback runs: 'succeeded' | 'ended' | '-' if there is none
-- ARGV  id        of the callback
-- ARGV  envelope  JSON; '' if there is none
-- ARGV  delay_ms  integer >= 0, from when the group has ended
-- ARGV  name      of its queue
-- ARGV  results   'kept' until the callback has ended | ''
-- MOVES    new: put_after
-- RETURNS  1 it is open | 0 it was before
-- TWICE    0, and changes nothing
-- COST     O(1)
-- @include server_time
-- @include count_waiting
-- @include store_job
-- All keys are read before anything is changed: a foreign key stops the script here.
for _, key in ipairs({bodies, facts, states, waiting, pending, finished}) do
  -- @guard key:hash
end
if redis.call('HSETNX', groups, group, 'open ' .. when .. ' 0 0 0 0 0' .. (results ~= '' and ' ' .. results or '')) == 0 then
  return 0
end
if envelope ~= '' then
  store_job(bodies, facts, id, string.format('%.0f ', math.floor(server_time() / 1000)), envelope)
  redis.call('HSET', states, id, 'waiting ' .. delay_ms .. ' ' .. name)
  redis.call('HSET', pending, id, group)
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
  count_waiting(waiting, name, 1)
end
return 1
