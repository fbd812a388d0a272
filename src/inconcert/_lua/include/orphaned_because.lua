-- Why a job is dead-lettered of which a parent did not succeed: `outcome` is the parent's, or '' if it is not known.  Of a
-- parent that was itself dead-lettered for a parent, it names the first of that chain, too.
local function orphaned_because(parent, outcome)
  local what = 'is not known'
  if outcome ~= '' then
    local word = string.match(outcome, '^%l+')
    what = word == 'cancelled' and 'was cancelled' or word == 'incomplete' and 'has members that cannot succeed' or 'failed'
  end
  local name = string.gsub(parent, '[%c"\\]', function(c) return string.format('\\u%04x', string.byte(c)) end)
  local first = string.match(outcome, '^failed {"reason":"its parent ([^"]+)"}')
  local because = first and ', because ' .. (string.match(first, ', because (.+)$') or first) or ''
  return '{"reason":"its parent ' .. name .. ' ' .. what .. because .. '"}'
end
