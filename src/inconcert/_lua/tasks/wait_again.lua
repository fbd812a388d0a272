-- tasks/wait_again: put a job that was dead-lettered because of a parent back, to wait for its parents as if it were new.
--
-- KEYS  bodies queue bell delayed states dead reasons facts children followers outcomes
-- KEYS  waiting pending unfollowed news recent older history
-- PLUGS on_revive on_replay on_dead
-- ARGV  request     string, unique to this call
-- ARGV  id          string
-- ARGV  queue_name  string
-- ARGV  delay_ms    integer >= 0, from when all parents have ended
-- ARGV  name        unique name, or ''; it has it again unless another job has it now
-- ARGV  suffix      of the ids of this partition; '' if there are no others
-- ARGV  even_if     '' if all must have succeeded | 'failed' | 'ended'; see lets_run()
-- ARGV  after..     ids, each once, 1 to 100
-- MOVES    dead: replayed put_off put_after; new: put_after
-- RETURNS  1 it is not among the dead now | 0 it was not among them, or is again because of another parent
-- TWICE    the same, and nothing is changed, even if it was dead-lettered again in between
-- COST     O(P log F), P parents, F pairs of followers
-- @include server_time
-- @include recall
-- @include remember
-- @include revive
-- @include wait_for_parents
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- All destination keys are read before anything is changed: a foreign key stops the script here.
-- @guard keys.queue:list keys.bell:list keys.delayed:zset keys.history:zset on_replay
if redis.call('ZREM', keys.dead, id) == 0 then
  remember(recent, older, request, 0)
  return 0
end
local now_ms = math.floor(server_time() / 1000)
revive(keys, {id = id, envelope = '', name = name}, now_ms)
wait_for_parents(keys, id, {unpack(ARGV, AFTER)}, {}, suffix, even_if, delay_ms, queue_name, now_ms)
answer = redis.call('ZSCORE', keys.dead, id) and 0 or 1
if answer == 1 then
  -- @each on_replay(keys, id)
end
remember(recent, older, request, answer)
return answer
