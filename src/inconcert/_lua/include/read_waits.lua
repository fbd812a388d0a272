-- The lines from which tasks/let_in takes jobs: for which limit and rate each waits, or '-'; how many were let in and not claimed
-- yet, what they cost of the rate, and until when, server ms, they are waited for; and in `let_in` how many of all lines are waited
-- for of each limit, and at what cost of each rate.  They are read once.
-- @include count_let_in
local function read_waits(limited)
  if not limited.waits then
    local waits = {of = {}, let_in = {}}
    limited.waits = waits
    for line, limit, rate, count, cost, until_ms in string.gmatch(
      redis.call('HGET', limited.places, '+') or '', '(%x+) (%S+) (%S+) (%d+) (%d+) (%d+)') do
      local wait = {line = line, limit = limit, of_rate = rate, count = tonumber(count), cost = tonumber(cost)}
      wait.until_ms = tonumber(until_ms)
      waits[#waits + 1], waits.of[line] = wait, wait
      count_let_in(limited, wait, 1)
    end
  end
  return limited.waits
end
