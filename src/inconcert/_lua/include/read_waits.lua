-- The lines from which tasks/let_in takes jobs: for which limit and rate each waits, or '-'; how many were let in and not claimed
-- yet, what they cost of the rate, and until when, server ms, they are waited for.  They are read once.
local function read_waits(limited)
  if not limited.waits then
    local waits = {of = {}}
    for line, limit, rate, count, cost, until_ms in string.gmatch(
      redis.call('HGET', limited.places, '+') or '', '(%x+) (%S+) (%S+) (%d+) (%d+) (%d+)') do
      waits.of[line] = {line = line, limit = limit, of_rate = rate, count = tonumber(count), cost = tonumber(cost)}
      waits.of[line].until_ms = tonumber(until_ms)
      waits[#waits + 1] = waits.of[line]
    end
    limited.waits = waits
  end
  return limited.waits
end
