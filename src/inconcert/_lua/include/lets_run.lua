-- Whether a job may run after a parent that ended so: `even_if` is '' if it must have succeeded, 'failed' if it may have
-- been dead-lettered, 'ended' if it may also have been cancelled, and 'replaces' if it runs however that one has ended.
local function lets_run(outcome, even_if)
  local how = string.match(outcome, '^%a*')
  return how == 'succeeded' or even_if == 'replaces' or (how == 'failed' and even_if ~= '')
    or (how == 'cancelled' and even_if == 'ended')
end
