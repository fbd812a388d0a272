-- queues/shut: shut a queue down, or open it again, and tell those that wait.
--
-- KEYS  shut standby joiners line recent older
-- ARGV  state    1 or 2, as above | 0 open
-- ARGV  inboxes  prefix of each session's inbox channel
-- ARGV  request  string, unique to this call
-- RETURNS  1 more consumers may have to be told: call it again for them, with another request | 0
-- TWICE    the same, and nothing is changed, even if it was opened or shut in between
-- COST     O(log N), N that wait, of whom at most 200 are told
-- @include recall
-- @include remember
-- @include publish
-- @include wake_first_putter
local answer = recall(recent, older, request)
if answer then
  return tonumber(answer)
end
-- @guard standby:zset joiners:zset line:zset
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
