-- Returns the messages of lapsed claims to unread: of at most 100 claims, and none after 1,000 messages or 16 MiB.
-- @include return_unread
local function return_lapsed(messages, unread, claims, claimed, dropped, now_ms)
  local count, bytes = 0, 0
  for _, claim in ipairs(redis.call('ZRANGEBYSCORE', claims, '-inf', now_ms, 'LIMIT', 0, 100)) do
    if count < 1000 and bytes < 16777216 then
      local more, more_bytes = return_unread(messages, unread, claims, claimed, dropped, claim, true)
      count, bytes = count + more, bytes + more_bytes
    end
  end
end
