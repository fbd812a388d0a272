-- tasks/note_undo: note that a job has something to undo; or ask how it ends once that is undone.
--
-- KEYS  claimed facts undo
--       claimed: hash, of this worker
-- ARGV  id        string
-- ARGV  position  integer, as it was claimed
-- RETURNS  what is noted of it | '' the worker does not hold it at this position
-- TWICE    the same, and nothing is changed
-- COST     O(1)
-- @include flag
if string.match(redis.call('HGET', claimed, id) or '', '^%d+') ~= position then
  return ''
end
flag(facts, id, 'u')
redis.call('HSETNX', undo, id, '-')
return redis.call('HGET', undo, id)
