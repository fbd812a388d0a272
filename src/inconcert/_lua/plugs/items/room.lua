-- plugs/items/room: waiters for room to put an item in, and until no item is left.
--
-- KEYS  line joiners dead

-- Tells them that there is one item less.
local function room_on_end(keys, _, inboxes)
  if redis.call('EXISTS', keys.line, keys.joiners) > 0 then
    -- @block wake_first_putter
    wake_first_putter(keys.line, inboxes)
    -- @block tell_joiners
    tell_joiners(keys.joiners, keys.bodies, keys.dead, inboxes)
  end
end
