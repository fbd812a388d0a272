-- The limits of a job, '/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT.../eEXPIRES_MS', of which it may lack each; of a key in strict
-- order '/o:KEY' or '/g:KEY', which goes on past the dead, in place of '/s:KEY'.  What has a name or a cost comes before the last:
-- '/wN.LIMIT,INTERVAL_US.BURST_US.COST.RATE:LINE', of which it may lack 'N.LIMIT' or what follows that.  Jobs of one task mostly
-- have the same: `parsed` has those of the jobs before.
local function parse_limits(parsed, text)
  local limits = parsed[text]
  if not limits then
    local expires_ms = string.match(text, '/e(%d+)$')
    limits = {text = text, key = string.match(text, '/s:(%x+)'), expires_ms = expires_ms and tonumber(expires_ms), counts = {}}
    limits.order = string.match(text, '/[og]:(%x+)')
    limits.rate, limits.of_rate = string.match(text, '^/(r[^:]+:(%x+))')
    for most, limit in string.gmatch(text, '/(%d+):(%x+)') do
      limits.counts[#limits.counts + 1] = {limit = limit, most = tonumber(most), is_of_key = limit == limits.key}
      limits.key_counts = limits.key_counts or limit == limits.key
    end
    local most, named, costed, line = string.match(text, '/w(%d*)%.?(x?%x*)([^:]*):(%x+)')
    if line then
      local interval, burst, cost, rate = string.match(costed, '^,(%d+)%.(%d+)%.(%d+)%.([yz]%x+)$')
      limits.wait = {line = line, limit = named ~= '' and named or '-', of_rate = rate or '-', cost = tonumber(cost or 0)}
      limits.wait.rate = rate and 'r' .. interval .. ',' .. burst .. ':' .. rate
      if named ~= '' then
        limits.wait.named = {limit = named, most = tonumber(most), is_named = true}
        limits.counts[#limits.counts + 1] = limits.wait.named
      end
    end
    parsed[text] = limits
  end
  return limits
end
