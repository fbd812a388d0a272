-- claims/dead: what was set aside, the latest first.
--
-- KEYS[1]  dead     zset    id -> when it was set aside, server ms
-- KEYS[2]  reasons  hash    id -> why it was set aside, JSON, newline, name of its queue
-- KEYS[3]  bodies   hash    id -> 'enqueued_ms envelope'
-- ARGV[1]  id       string, of the one to look at; '' for the latest
-- ARGV[2]  limit    integer from 1 to 1,000
-- RETURNS  {id, died_ms, reason, body, ...}
-- TWICE    the same; nothing is changed
-- COST     O(log N + M), N dead jobs, M answered
local dead, reasons, bodies = KEYS[1], KEYS[2], KEYS[3]
local answer = {}
local found = {ARGV[1], redis.call('ZSCORE', dead, ARGV[1])}
if ARGV[1] == '' then
  found = redis.call('ZREVRANGE', dead, 0, ARGV[2] - 1, 'WITHSCORES')
end
for i = 1, #found, 2 do
  local id, died_ms = found[i], found[i + 1]
  if died_ms then
    answer[#answer + 1] = id
    answer[#answer + 1] = died_ms
    answer[#answer + 1] = redis.call('HGET', reasons, id) or ''
    answer[#answer + 1] = redis.call('HGET', bodies, id) or ''
  end
end
return answer
