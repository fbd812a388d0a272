-- The first of those who wait for room, or nil; those whose process is gone are dropped, at most 100 of them.
local function first_in_line(line, inboxes)
  for _ = 1, 100 do
    local address = redis.call('ZRANGE', line, 0, 0)[1]
    if not address or redis.call('PUBSUB', 'NUMSUB', inboxes .. string.match(address, '^(.*)%.'))[2] > 0 then
      return address
    end
    redis.call('ZREM', line, address)
  end
end
