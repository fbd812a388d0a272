-- schedules/list: all schedules, about 100 at a time.
--
-- KEYS[1]  schedules         hash  id -> 'SINCE LAST RULE'
-- KEYS[2]  definitions       hash  id -> signed JSON
-- KEYS[3]  declared          zset  id -> when a worker followed it last, server ms; of schedules in code
-- KEYS[4]  paused_schedules  set   ids
-- ARGV[1]  cursor            0 to begin, then what the last call returned
-- RETURNS  {next cursor or 0, {{id, 'SINCE LAST RULE', signed JSON, is_in_code, is_paused}, ...}}; some may
--          come twice
-- TWICE    the same
-- COST     O(N), N schedules, about 100 of them
local schedules, definitions, declared, paused_schedules = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local found = redis.call('HSCAN', schedules, ARGV[1], 'COUNT', 100)
local page = {}
for i = 1, #found[2], 2 do
  local id = found[2][i]
  local definition = redis.call('HGET', definitions, id) or ''
  local is_in_code = redis.call('ZSCORE', declared, id) and 1 or 0
  page[#page + 1] = {id, found[2][i + 1], definition, is_in_code, redis.call('SISMEMBER', paused_schedules, id)}
end
return {found[1], page}
