-- The answer to someone who is not in the chat: {0, how many joins it had}, or {-1, more than any} if there is no such chat.
local function not_a_member(members, state)
  if redis.call('EXISTS', members) == 0 then
    return {-1, 9007199254740991}
  end
  return {0, tonumber(redis.call('HGET', state, 'joins'))}
end
