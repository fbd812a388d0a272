-- Takes a delayed job out of the line of the limit that holds it back, if one does. Returns its rate, 'rINTERVAL_US,BURST_US:LIMIT',
-- of which it may have been the next; nil for none.
local function leave_lines(held_back, bodies, id)
  local put_ms, limits = string.match(redis.call('HGET', bodies, id) or '', '^(%d+) %d+(/%S+)')
  for limit in string.gmatch(limits or '', ':(%x+)') do
    redis.call('ZREM', held_back, string.format('%s %014.0f %s', limit, put_ms, id))
  end
  return string.match(limits or '', '^/(r[^/]+)')
end
