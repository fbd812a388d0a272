-- The answer to a request that ran before, or nil; see remember().
local function recall(recent, older, request)
  return redis.call('HGET', recent, request) or redis.call('HGET', older, request) or nil
end
