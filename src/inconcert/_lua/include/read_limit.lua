-- How many jobs have a place in a limit, of how many: as the job says that was enqueued last, at `at_ms`, of those that were
-- looked at.  `text` is what is stored, 'COUNT MOST AT_MS'; false of a limit that no job has or waits for.
local function read_limit(text)
  local count, most, at_ms = string.match(text or '0 1 0', '^(%d+) (%d+) (%d+)$')
  return {count = tonumber(count), most = tonumber(most), at_ms = tonumber(at_ms)}
end
