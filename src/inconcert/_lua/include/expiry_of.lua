-- When a job expires that has this body, server ms, after how many seconds, and whether that is its deadline; nil if it does
-- not, by its envelope.
local function expiry_of(body)
  local put_ms = body and string.find(body, '"expires":', 1, true) and string.match(body, '^%d+')
  local is_json, envelope = pcall(cjson.decode, put_ms and string.match(body, '{.*}') or '{}')
  local expires = is_json and tonumber(envelope.expires)  -- of the envelope itself: an argument may be named so, too
  if expires then
    return put_ms + math.ceil(expires * 1000), expires, envelope.stops
  end
end
