-- queues/shut: shut a queue down, or open it again, and tell those that wait.
--
-- KEYS[1]  shut     string  1 shut down | 2 shut down at once; permanent until it is opened again
-- KEYS[2]  standby  zset    address -> when it asked, server ms: consumers that have nothing to do; 60 s
-- KEYS[3]  joiners  zset    address -> when it asked, server ms: those that wait until no item is left; 60 s
-- KEYS[4]  line     zset    address -> ticket: puts that wait for room
-- KEYS[5]  recent   hash    request -> its answer, 120 s
-- KEYS[6]  older    hash    earlier entries of the same; at most 120 s
-- ARGV[1]  state    1 or 2, as above | 0 open
-- ARGV[2]  inboxes  prefix of each session's inbox channel
-- ARGV[3]  request  string, unique to this call
-- RETURNS  1 more consumers may have to be told: call it again for them, with another request | 0
-- TWICE    the same, and nothing is changed, even if it was opened or shut in between
-- COST     O(log N), N that wait, of whom at most 200 are told
-- @include recall
-- @include remember
-- @include publish
-- @include wake_first_putter
local shut, standby, joiners, line, recent, older = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local state, inboxes, request = ARGV[1], ARGV[2], ARGV[3]
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
redis.call('ZCARD', standby)  -- a foreign key stops the script before it changes anything
redis.call('ZCARD', joiners)
redis.call('ZCARD', line)
if state == '0' then
  redis.call('DEL', shut)
elseif redis.call('GET', shut) ~= '2' then
  redis.call('SET', shut, state)
end
answer = 0
if state ~= '0' then
  for _, waiting in ipairs(state == '2' and {standby, joiners} or {standby}) do
    local addresses = redis.call('ZPOPMIN', waiting, 100)
    for i = 1, #addresses, 2 do
      publish(inboxes .. string.match(addresses[i], '^(.*)%.'), addresses[i] .. ' shut')
    end
    answer = #addresses == 200 and 1 or answer
  end
  wake_first_putter(line, inboxes)  -- it leaves the line, and so wakes the next
end
remember(recent, older, request, answer)
return answer
