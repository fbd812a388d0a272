-- plugs/items/room: waiters for room to put an item in, and until no item is left.
--
-- KEYS  line joiners dead

-- @include wake_first_putter
-- @include tell_joiners
-- Tells them that there is one item less.
local function room_on_end(keys, _, inboxes)
  wake_first_putter(keys.line, inboxes)
  tell_joiners(keys.joiners, keys.bodies, keys.dead, inboxes)
end
