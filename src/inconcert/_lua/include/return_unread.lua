-- Ends a claim and puts its messages back to their place, each with one more lapse if the claim has lapsed.  Those that were
-- acknowledged meanwhile stay gone.  What the claimer was told of as missed is to be told again.
local function return_unread(messages, unread, claims, claimed, dropped, claim, has_lapsed)
  local content = redis.call('HGET', claimed, claim)
  -- First what frees memory: after it a full server lets the rest pass.
  redis.call('ZREM', claims, claim)
  redis.call('HDEL', claimed, claim)
  local missed, ids = string.match(content or '0 ', '^(%d+) (.*)$')
  local count, bytes = 0, 0
  for id in string.gmatch(ids, '%d+') do
    local message = redis.call('HGET', messages, id)
    if message then
      if has_lapsed then
        local lapses, body = string.match(message, '^(%d+)( .*)$')
        redis.call('HSET', messages, id, string.format('%.0f', lapses + 1) .. body)
      end
      redis.call('ZADD', unread, id, id)
      count, bytes = count + 1, bytes + #message
    end
  end
  if missed ~= '0' then
    redis.call('INCRBY', dropped, missed)
  end
  return count, bytes
end
