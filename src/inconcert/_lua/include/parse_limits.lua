-- The limits of a job, '/rINTERVAL_US,BURST_US:LIMIT/s:KEY/N:LIMIT.../eEXPIRES_MS', of which it may lack each; of a key in strict
-- order '/o:KEY' or '/g:KEY', which goes on past the dead, in place of '/s:KEY'.  Jobs of one task mostly have the same: `parsed` has
-- those of the jobs before.
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
    parsed[text] = limits
  end
  return limits
end
