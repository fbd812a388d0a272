-- Drops a chat's messages up to the one that all members have read.
-- It writes even if there is nothing to drop, and never grows: after it a full server lets the rest of a script pass.
local function drop_read(messages, last, read_by_all)
  local first = last - redis.call('LLEN', messages) + 1
  redis.call('LTRIM', messages, math.max(0, read_by_all - first + 1), -1)
end
