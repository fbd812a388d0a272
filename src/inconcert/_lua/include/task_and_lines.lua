-- The task of a stored envelope, as JSON, and the limits in whose lines it is, which are those that its head has, without when it
-- expires.
local function task_and_lines(envelope)
  return string.match(envelope, '{"name":(".-"),"'), (string.gsub(string.match(envelope, '^%d+(/%S+)') or '', '/e%d+$', ''))
end
