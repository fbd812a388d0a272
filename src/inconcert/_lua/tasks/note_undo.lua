-- tasks/note_undo: note that a job has something to undo; or ask how it ends once that is undone.
--
-- KEYS[1]  claimed  hash    id -> 'place attempt since_ms queue-name'; of this worker
-- KEYS[2]  undo     hash    id -> '-' of a job that has something to undo | 'failed JSON' or 'cancelled ': how it ends once
--          that is undone; permanent until the job has ended
-- ARGV[1]  id       string
-- ARGV[2]  place    integer, as it was claimed
-- RETURNS  what is noted of it | '' the worker does not hold it at this place
-- TWICE    the same, and nothing is changed
-- COST     O(1)
local claimed, undo, id, place = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= place then
  return ''
end
redis.call('HSETNX', undo, id, '-')
return redis.call('HGET', undo, id)
