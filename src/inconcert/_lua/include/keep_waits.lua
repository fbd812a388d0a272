-- Writes the lines from which tasks/let_in takes jobs, see read_waits.lua, if they have changed.
local function keep_waits(limited)
  local waits, texts = limited.waits, {}
  if not waits or not waits.have_changed then
    return
  end
  for n, each in ipairs(waits) do
    texts[n] = string.format('%s %s %s %.0f %.0f %.0f', each.line, each.limit, each.of_rate, each.count, each.cost, each.until_ms)
  end
  if texts[1] then
    redis.call('HSET', limited.places, '+', table.concat(texts, ' '))
  else
    redis.call('HDEL', limited.places, '+')
  end
  waits.have_changed = false
end
