-- Reads the head of a body, 'PUT_MS [MAX_CRASHES[/LIMITS] [#MOST:TASK[+]][!PRIORITY][~FIRST_MS]] TEXT': when it was put in; for how
-- many crashes it is good; its limits, with the '/'; 'MOST:TASK', in which history its end is to be, with a '+' if with its arguments;
-- and if it was debounced, when its first call was, '' if there was only one.  Nil for each that it lacks.
local function head_of(body)
  local put_ms, max_crashes, at = string.match(body or '', '^(%d+) (%d+)()[ /]')
  if not at then
    return string.match(body or '', '^%d+')
  end
  local kept, debounced, first_ms = string.match(body, '^%S* #([%x:+]*)!?%d?(~?)(%d*) ', at)
  return put_ms, max_crashes, string.match(body, '^/%S+', at), kept ~= '' and kept or nil, debounced == '~' and first_ms or nil
end
