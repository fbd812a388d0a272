-- The answer for a user who is not in the chat: {0, user}, or {-1, user} if there is no such chat.
local function not_a_member(members, user)
  return {redis.call('EXISTS', members) - 1, user}
end
