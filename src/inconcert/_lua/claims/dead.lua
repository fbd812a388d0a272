-- claims/dead: what was dead-lettered, the latest first.
--
-- KEYS  dead reasons bodies
-- ARGV  id     string, of the one to look at; '' for the latest
-- ARGV  skip   integer >= 0: how many of the latest to pass over
-- ARGV  limit  integer from 1 to 1,000; fewer are answered if they have 1 MiB
-- RETURNS  {more, id, died_ms, reason, body, ...}: 1 if there are more, up to the limit
-- TWICE    the same; nothing is changed
-- COST     O(log N + M), N dead jobs, M answered
-- @include if_small
local found = {id, redis.call('ZSCORE', dead, id) or nil}
if id == '' then
  found = redis.call('ZREVRANGE', dead, skip, skip + limit - 1, 'WITHSCORES')
end
local answer, bytes = {0}, 0
for i = 1, #found - 1, 2 do
  if bytes >= 1048576 then
    answer[1] = 1
    break
  end
  local reason, body = redis.call('HGET', reasons, found[i]) or '', redis.call('HGET', bodies, found[i]) or ''
  bytes = bytes + #reason + #body
  for _, part in ipairs({found[i], found[i + 1], reason, body}) do
    answer[#answer + 1] = part
  end
end
return if_small(answer, bytes)
