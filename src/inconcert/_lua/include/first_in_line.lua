-- The first put that waits for room, or nil.  Puts whose process is gone, or is one of `still`, are dropped, at most 100
-- of them.
-- @include is_listening
local function first_in_line(line, inboxes, still)
  for _ = 1, 100 do
    local address = redis.call('ZRANGE', line, 0, 0)[1]
    local session = string.match(address or '', '^(.*)%.')
    if not address or (not still[session] and is_listening(inboxes .. session)) then
      return address
    end
    redis.call('ZREM', line, address)
  end
end
