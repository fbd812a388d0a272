-- Tells those that wait until no item is left, once none is: 'ADDRESS done', to at most 100 of them.
-- The others ask again within 5 s, and the tellings of one whose process is gone lead nowhere.
-- @include publish
local function tell_joiners(joiners, bodies, dead, inboxes)
  if redis.call('EXISTS', joiners) == 0 or redis.call('HLEN', bodies) > redis.call('ZCARD', dead) then
    return
  end
  local addresses = redis.call('ZPOPMIN', joiners, 100)
  for i = 1, #addresses, 2 do
    publish(inboxes .. string.match(addresses[i], '^(.*)%.'), addresses[i] .. ' done')
  end
end
