-- Notifies waiters for the end of a job: publishes 'ADDRESS ended' to the inbox of each process that has one.
-- Returns whether there are any.
-- @include publish
local function notify_watchers(watchers, inboxes, id)
  local is_watched = false
  repeat
    local pairs_told = redis.call('ZRANGEBYLEX', watchers, '[' .. id .. ' ', '(' .. id .. '!', 'LIMIT', 0, 1000)
    for _, pair in ipairs(pairs_told) do
      local address = string.sub(pair, #id + 2)
      redis.call('ZREM', watchers, pair)
      publish(inboxes .. string.match(address, '^[^.]*'), address .. ' ended')
      is_watched = true
    end
  until #pairs_told < 1000
  return is_watched
end
