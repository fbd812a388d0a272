-- A limit as it is stored; see read_limit.lua.
local function limit_text(known)
  return string.format('%.0f %.0f %.0f', known.count, known.most, known.at_ms)
end
