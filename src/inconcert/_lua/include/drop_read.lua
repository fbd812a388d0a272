-- Drops a chat's messages up to the last one that all members have read, but never the latest `history` ones.
-- It writes even if there is nothing to drop, and never grows: after it a full server lets the rest of a script pass.
local function drop_read(messages, last, read_by_all, history)
  local length = redis.call('LLEN', messages)
  local read = math.max(0, read_by_all - last + length)
  redis.call('LTRIM', messages, math.min(read, math.max(0, length - history)), -1)
end
