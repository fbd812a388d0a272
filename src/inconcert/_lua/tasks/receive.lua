-- tasks/receive: the message for which a job waits; when its time is over, none of this name is accepted any more.
--
-- KEYS  claimed facts messages received
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- ARGV  name      'LENGTH NAME', of the message
-- ARGV  is_over   1 its time is over: if it is not there, it will never be | 0
-- RETURNS  {1, message} | {1, ''} it was waited for too long | {2, ''} not there yet | {0, ''} the worker does not hold the
--          job at this position
-- TWICE    the same, and nothing is changed; or the message, if it was sent in between
-- COST     O(1); O(N) when its time is over, N messages to the job
-- @include keep_message
-- @include if_small
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then
  return {0, ''}
end
local message = redis.call('HGET', messages, name .. ' ' .. id)
if message then
  return if_small({1, message}, #message)
elseif is_over == '0' then
  return {2, ''}
end
keep_message(facts, messages, received, id, name, '')
return {1, ''}
