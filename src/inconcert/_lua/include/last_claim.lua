-- The number of a worker's last claim, that claim as it was noted, and until when the worker lives; nil if it was presumed dead.
local function last_claim(claimed, clock, alive, workers, worker)
  local ends = redis.call('ZSCORE', alive, worker) or redis.call('ZSCORE', workers, worker)
  local at_ms = string.match(redis.call('GET', clock) or '0 ', '^(%S+) ')
  if ends and tonumber(ends) > tonumber(at_ms) then
    local last = redis.call('HGET', claimed, '#')
    return last and string.match(last, '^%d+') or '0', last, ends
  end
end
