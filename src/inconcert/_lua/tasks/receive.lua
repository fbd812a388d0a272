-- tasks/receive: the message for which a job waits; when its time is over, none of this name is accepted any more.
--
-- KEYS[1]  claimed   hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  messages  hash    'LENGTH NAME ID' -> a message to that job: signed JSON, or '' once it was waited for too long;
--          permanent until the job has ended
-- KEYS[3]  received  hash    id -> 'COUNT BYTES NAMES': how much was sent to it, and 'LENGTH NAME' of each; permanent as
--          messages
-- ARGV[1]  id        string
-- ARGV[2]  place     integer, as it was claimed
-- ARGV[3]  name      'LENGTH NAME', of the message
-- ARGV[4]  is_over   1 its time is over: if it is not there, it will never be | 0
-- RETURNS  {1, message} | {1, ''} it was waited for too long | {2, ''} not there yet | {0, ''} the worker does not hold the
--          job at this place
-- TWICE    the same, and nothing is changed; or the message, if it was sent in between
-- COST     O(1); O(N) when its time is over, N messages to the job
-- @include keep_message
-- @include if_small
local claimed, messages, received = KEYS[1], KEYS[2], KEYS[3]
local id, place, name, is_over = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= place then
  return {0, ''}
end
local message = redis.call('HGET', messages, name .. ' ' .. id)
if message then
  return if_small({1, message}, #message)
elseif is_over == '0' then
  return {2, ''}
end
keep_message(messages, received, id, name, '')
return {1, ''}
