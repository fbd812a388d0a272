-- Tells those who wait for a job to end to look at it: 'ADDRESS look', to the inbox of each one's process.
local function tell_watchers(watchers, inboxes, id)
  local addresses = redis.call('HGET', watchers, id)
  if addresses then
    redis.call('HDEL', watchers, id)
    for address, session in string.gmatch(addresses, '((%S+)%.%S+)') do
      redis.call('PUBLISH', inboxes .. session, address .. ' look')
    end
  end
end
