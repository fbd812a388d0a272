-- Notifies the first put that waits for room that there may be some: 'ADDRESS room LINE', to the inbox of its process, so
-- that a process that no longer has that address can remove it from the line.
-- @include first_in_line
-- @include publish
local function wake_first_putter(line, inboxes)
  local address = first_in_line(line, inboxes, {})
  if address then
    publish(inboxes .. string.match(address, '^(.*)%.'), address .. ' room ' .. line)
  end
end
