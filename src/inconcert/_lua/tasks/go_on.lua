-- tasks/go_on: dead jobs of one queue stop their keys no longer: the next of each key comes.
--
-- KEYS  places held_back states dead facts queue bell delayed
-- ARGV  ids..  of the jobs, 1 to 500
-- MOVES    delayed: admitted
-- RETURNS  how many stopped their key
-- TWICE    0: they do not stop it any more
-- COST     O(N log D), N ids, D delayed jobs of the queue
-- @include next_in_order
-- @guard queue:list bell:list delayed:zset places:hash held_back:zset
local went_on = 0
for i = IDS, #ARGV do
  local key = redis.call('ZSCORE', dead, ARGV[i]) and redis.call('HGET', places, '=' .. ARGV[i])
  if key then
    next_in_order(places, held_back, states, {queue, bell, delayed, facts = facts}, key, ARGV[i])
    went_on = went_on + 1
  end
end
return went_on
