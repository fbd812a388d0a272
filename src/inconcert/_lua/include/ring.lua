-- Wakes one idle consumer: the first in line on the bell that still listens, as they sleep on a cluster.  If there is
-- none, puts a token on the bell, for one that waits in BLPOP, or comes within a minute.
-- @include is_listening
-- @include publish
local function ring(bell)
  local first = redis.call('LINDEX', bell, 0)
  while first and first ~= '1' do
    redis.call('LPOP', bell)
    local inbox, address = string.match(first, '^(.*) (.*)$')
    if inbox and is_listening(inbox) then
      publish(inbox, address .. ' bell ' .. bell)
      return
    end
    first = redis.call('LINDEX', bell, 0)
  end
  if not first then
    redis.call('RPUSH', bell, '1')
    redis.call('PEXPIRE', bell, 60000)
  end
end
