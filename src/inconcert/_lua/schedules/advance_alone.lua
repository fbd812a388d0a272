-- schedules/advance_alone: as schedules/advance, for one instant of a schedule whose jobs do not run beside each other.
--
-- KEYS  bodies queue bell delayed finished schedules looks looks_in_code dead states facts children followers parents waiting pending
-- KEYS  result
--       result: string  of the instant's job: another schedule of its task may have enqueued it
-- ARGV  name        of the queue
-- ARGV  schedule    its id
-- ARGV  is_in_code  flag
-- ARGV  held_ms     until when this worker holds it, with fractions: nobody else has held it until then
-- ARGV  since_ms    as it was when the worker took it
-- ARGV  until_ms    its last instant that is done with then
-- ARGV  next_ms     the next instant, server ms; or '' if there will be none
-- ARGV  former      id of the job that it enqueued last
-- ARGV  before      id of the one for which that was to wait; '' if for none
-- ARGV  waits       flag: if one of these has not ended, the job waits for it, unless it waits itself; otherwise there is no job
-- ARGV  instant_ms  integer > 0
-- ARGV  id          of the job of the instant
-- ARGV  envelope    of that
-- MOVES    new: enqueued put_after
-- RETURNS  1 its job was added | 0 there is none, or it is there, or its result is kept | -1 as of schedules/advance
-- TWICE    -1, and nothing is changed
-- COST     O(log N + log F), N schedules, F pairs of followers
-- @include server_time
-- @include held_schedule
-- @include move_schedule
-- @include run_after
-- @include store_job
-- @include put_ready
-- @include ring
local line = is_in_code and looks_in_code or looks
local last, rule = held_schedule(schedules, line, schedule, since_ms, held_ms)
local now_ms = math.floor(server_time() / 1000)
if not last or tonumber(instant_ms) > now_ms then
  return -1
end
-- @guard queue:list bell:list delayed:zset facts:hash followers:zset children:zset
local is_known = redis.call('EXISTS', result) == 1 or redis.call('HEXISTS', bodies, id) == 1
local last_ms, before_ms = string.match(last, '^(%d+),?(%d*)$')
local live, live_ms
for _, one in ipairs({{former, last_ms}, {before, before_ms}}) do  -- the second one if the first was cancelled while it waited
  if not live and redis.call('HEXISTS', bodies, one[1]) == 1 and not redis.call('ZSCORE', dead, one[1]) then
    live, live_ms = unpack(one)
  end
end
local comes_after = live and waits and not string.find(redis.call('HGET', states, live) or '', '^waiting ')
local is_added = not is_known and (comes_after or not live)
if is_added then
  redis.call('HSETNX', finished, name, 0)  -- the names of all queues are there
  store_job(bodies, facts, id, string.format('%.0f ', now_ms), envelope)
  if comes_after then
    run_after(keys, live, id, 'ended', '0', name)
  else
    put_ready(facts, queue, delayed, {id}, 'RPUSH')
    ring(bell)
  end
end
if is_added or is_known then
  last = instant_ms .. (live and ',' .. live_ms or '')
end
move_schedule(schedules, line, schedule, until_ms, last, rule, next_ms)
return is_added and 1 or 0
