-- Reads why an attempt failed, JSON as dead_letters.py has it: the error in one line, and where it was raised; a text that is not
-- JSON is the error itself.
local function read_reason(text)
  local is_json, reason = pcall(cjson.decode, text)
  if is_json and type(reason) == 'table' and type(reason.reason) == 'string' then
    return reason.reason, type(reason.traceback) == 'string' and reason.traceback or ''
  end
  return text, ''
end
