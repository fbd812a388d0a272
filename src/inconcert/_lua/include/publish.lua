-- Publishes a message; returns how many connections listen, on a cluster those at this node.
-- @include publishing
local function publish(channel, message)
  return redis.call(publishing(channel), channel, message)
end
