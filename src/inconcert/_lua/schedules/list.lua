-- schedules/list: all schedules, about 100 at a time, with about 1 MiB of definitions.
--
-- KEYS  schedules definitions declared paused_schedules
-- ARGV  cursor  0 to begin, then what the last call returned
-- RETURNS  {next cursor or 0, {{id, 'SINCE LAST[,BEFORE] RULE', signed JSON, is_in_code, is_paused}, ...}}; some may
--          come twice; nil in place of the JSON for which there was no room, which schedules/find gives
-- TWICE    the same
-- COST     O(N), N schedules, about 100 of them
-- @include if_small
local MOST_BYTES = 1048576

local found = redis.call('HSCAN', schedules, cursor, 'COUNT', 100)
local page, bytes = {}, 0
for i = 1, #found[2], 2 do
  local id, definition = found[2][i], false
  if bytes < MOST_BYTES then
    definition = redis.call('HGET', definitions, id) or ''
    bytes = bytes + #definition
  end
  local is_in_code = redis.call('ZSCORE', declared, id) and 1 or 0
  page[#page + 1] = {id, found[2][i + 1], definition, is_in_code, redis.call('SISMEMBER', paused_schedules, id)}
end
return if_small({found[1], page}, bytes)
