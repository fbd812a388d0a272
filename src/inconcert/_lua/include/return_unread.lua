-- Ends a claim and returns its messages to their positions, each with one more lapse if the claim has lapsed.  Those
-- acknowledged meanwhile stay gone.  Messages reported to the claimer as missed will be reported again.
local function return_unread(messages, unread, claims, claimed, dropped, claim, has_lapsed)
  local content = redis.call('HGET', claimed, claim)
  -- First what frees memory: after it a full server accepts the rest.
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
