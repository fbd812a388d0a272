-- The lowest score of a message within the maximum age: ids are instants.
local function min_score(now_us, max_age_ms)
  return max_age_ms == '0' and '-inf' or string.format('%.0f', now_us - max_age_ms * 1000)
end
