-- members/share: let go of keys, and claim others: part of one turn of a member.
--
-- A key has one owner: the member that claimed it, until that lets go of it or is no member any more.
--
-- KEYS  members values state claims
-- ARGV  member   string
-- ARGV  turn     integer > 0, larger than that of all earlier turns of the member
-- ARGV  ttl_ms   number > 0, of the member
-- ARGV  changes  channel of the group
-- ARGV  let_go   number, how many of the keys are let go of: the first ones
-- ARGV  keys..   at most 500; the rest is claimed
-- RETURNS  {1, token or 0, ...}: the fencing token of each key to be claimed, 0 where another has it | {0} not a member
-- TWICE    the same, with what was let go of by others since; {1} and nothing is changed if a later turn has begun
-- COST     O(K), K keys; O(W) if some were let go of, W processes that listen
-- @include server_time
-- @include drop_members
-- @include tell_members
-- @include extend_ttl
local HOUR_MS = 3600000
local now_us = server_time()
drop_members(members, values, state, changes, now_us)
if not redis.call('ZSCORE', members, member) then
  return {0}
end
if tonumber(redis.call('HGET', state, 'turn:' .. member) or 0) > tonumber(turn) then
  return {1}
end

local freed, answer = {}, {1}
for i = KEYS, #ARGV do
  local key = ARGV[i]
  local token, owner = string.match(redis.call('HGET', claims, key) or '', '^(%d+) (.*)$')
  if i < KEYS + let_go then
    if owner == member then
      redis.call('HDEL', claims, key)
      freed[#freed + 1] = key
    end
  else
    if owner ~= member and not (owner and redis.call('ZSCORE', members, owner)) then
      token, owner = redis.call('HGET', state, 'version'), member
      redis.call('HSET', claims, key, token .. ' ' .. member)
    end
    answer[#answer + 1] = owner == member and tonumber(token) or 0
  end
end
if #freed > 0 then
  tell_members(state, changes, now_us, 'freed ' .. member .. ' ' .. cjson.encode(freed))
end
redis.call('HSET', state, 'turn:' .. member, turn)

-- Claims of members that are gone, on keys that nobody asks for any more: looks at as many as may be new.
local found = redis.call('HSCAN', claims, redis.call('HGET', state, 'sweep') or '0', 'COUNT', 100 + #ARGV)
for i = 1, #found[2], 2 do
  if not redis.call('ZSCORE', members, string.match(found[2][i + 1], ' (.*)$')) then
    redis.call('HDEL', claims, found[2][i])
  end
end
redis.call('HSET', state, 'sweep', found[1])
extend_ttl(claims, ttl_ms + HOUR_MS)
return answer
