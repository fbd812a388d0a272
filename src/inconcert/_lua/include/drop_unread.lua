-- Drops these unread messages and counts them, so that the reader is notified.
local function drop_unread(messages, unread, dropped, ids)
  if #ids > 0 then
    redis.call('ZREM', unread, unpack(ids))
    redis.call('HDEL', messages, unpack(ids))
    redis.call('INCRBY', dropped, #ids)
  end
end
