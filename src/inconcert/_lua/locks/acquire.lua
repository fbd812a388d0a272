-- locks/acquire: take several locks, or none of them.
--
-- KEYS  locks..
--       locks: holders (zset), waiters (zset) and fence (string) of each, as in permits
-- ARGV  ttl_ms     number > 0
-- ARGV  holders..  'session.number' for each, in the same order
-- RETURNS  {token, is_after_loss, ...} all are taken, as permits/acquire answers each | {} none: one is held or has waiters
-- TWICE    the holders keep what they hold, with full leases and new, larger tokens, and are told of losses again
-- COST     O(M log N), M locks with N holders and waiters
-- @include server_time
-- @include next_token
-- @include hold
-- @include drop_lapsed
local PARTS = 3  -- keys of each lock

local now_us = server_time()
local now_ms = math.floor(now_us / 1000)

-- All are checked before one is changed.
for i = LOCKS, #KEYS, PARTS do
  local holders, waiters, holder = KEYS[i], KEYS[i + 1], ARGV[HOLDERS + (i - 1) / PARTS]
  local ends = redis.call('ZSCORE', holders, holder)
  if not ends or tonumber(ends) <= now_ms then
    local held = redis.call('ZCOUNT', holders, '(' .. now_ms, '+inf')
    if held > 0 or redis.call('EXISTS', waiters) == 1 then
      return {}
    end
  end
end

local tokens = {}
for i = LOCKS, #KEYS, PARTS do
  local holders, fence, holder = KEYS[i], KEYS[i + 2], ARGV[HOLDERS + (i - 1) / PARTS]
  drop_lapsed(holders, fence, now_ms)
  local token, is_after_loss = next_token(fence, now_us)
  is_after_loss = hold(holders, holder, now_ms + ttl_ms, ttl_ms, is_after_loss)
  tokens[#tokens + 1] = tonumber(token)
  tokens[#tokens + 1] = is_after_loss and 1 or 0
end
return tokens
