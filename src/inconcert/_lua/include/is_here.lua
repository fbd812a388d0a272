-- Whether a job lies in this partition, the ids of which end with this suffix; it is '' if there are no others.
local function is_here(id, suffix)
  return suffix == '' or string.sub(id, -#suffix) == suffix
end
