-- The names in a text such as '4 paid6 packed', each with its length: {'4 paid', '6 packed'}.
local function packed_names(text)
  local names, at = {}, 1
  while at <= #text do
    local _, last, length = string.find(text, '^(%d+) ', at)
    names[#names + 1] = string.sub(text, at, last + length)
    at = last + length + 1
  end
  return names
end
