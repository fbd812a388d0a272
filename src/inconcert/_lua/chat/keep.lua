-- chat/keep: make a new chat stay, now that the lists of its members have it.
--
-- KEYS[1]  members   zset  user -> id of the last message read
-- KEYS[2]  state     hash  max_age_ms
-- KEYS[3]  messages  list  'AT_MS\nBODY\nSENDER'
-- RETURNS  1 it stays | 0 it is gone
-- TWICE    the same
-- COST     O(1)
local members, state, messages = KEYS[1], KEYS[2], KEYS[3]
if redis.call('EXISTS', members) == 0 then
  return 0
end
redis.call('PERSIST', members)
redis.call('PERSIST', state)
local max_age_ms = redis.call('HGET', state, 'max_age_ms')
if max_age_ms == '0' then
  redis.call('PERSIST', messages)
else
  redis.call('PEXPIRE', messages, max_age_ms)
end
return 1
